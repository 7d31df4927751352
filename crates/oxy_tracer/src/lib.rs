//! The symbolic interpreter: bytecode in; guards, graph, effects and exits out.
