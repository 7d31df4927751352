//! Prints LLVM IR (default) or assembly of a kernel file: `dump FILE [asm] [CPU]`.
#![allow(clippy::print_stdout, reason = "a tool for the terminal")]

use oxy_codegen::{HostTarget, assembly, llvm_ir};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let kernel = oxy_loops::parse(&std::fs::read_to_string(&args[1]).unwrap()).unwrap();
    let target = args.get(3).map_or_else(HostTarget::detect, |cpu| HostTarget::with_cpu(cpu).unwrap());
    let is_asm = args.get(2).is_some_and(|a| a == "asm");
    println!("{}", if is_asm { assembly(&kernel, &target) } else { llvm_ir(&kernel, &target) }.unwrap());
}
