//! Loop kernels: iteration spaces, scalar bodies, fusion and schedules, with text form. No Python, no unsafe, no IO.
