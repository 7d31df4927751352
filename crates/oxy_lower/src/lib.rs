//! Graph passes and lowering of graphs to loop kernels and plans.
