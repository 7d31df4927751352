//! LLVM code generation for loop kernels: scalar spellings, vector math, host objects.
