//! Decodes every supported CPython's bytecode into one neutral instruction set; knows no Python objects.
