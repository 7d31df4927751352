//! Frame hook, frame layouts, on-stack replacement and single steps on real Python frames. Unsafe room.
