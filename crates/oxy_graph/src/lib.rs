//! The graph: nodes over ATen operators or torch callables, with text form and verifier. No Python, no unsafe, no IO.
