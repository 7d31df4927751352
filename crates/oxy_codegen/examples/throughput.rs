//! Throughput of generated kernels on one core, and what compiling them costs.
//! `cargo run --release -p oxy_codegen --example throughput`
#![allow(clippy::print_stdout, reason = "a report for the terminal")]

use oxy_codegen::{HostTarget, Linker, compile};
use oxy_loops::{Kernel, parse};

type Entry = unsafe extern "C" fn(*const *mut u8, i64, i64);

/// CPU seconds of this thread: the machine may be busy.
fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid out-pointer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    let target =
        std::env::var("OXY_TEST_CPU").map_or_else(|_| HostTarget::detect(), |cpu| HostTarget::with_cpu(&cpu).unwrap());
    println!("{} ({} bits)", target.cpu, target.vector_bits);
    let linker = Linker::new().unwrap();
    let folder = format!("{}/../oxy_loops/tests/kernels", env!("CARGO_MANIFEST_DIR"));
    let only: Vec<String> = std::env::args().skip(1).collect();
    for name in [
        "relu",
        "gelu_tanh",
        "gelu_erf",
        "softmax",
        "layer_norm",
        "sum_rows",
        "sum_columns",
        "silu_mul_bf16",
        "transpose",
    ] {
        if !only.is_empty() && !only.iter().any(|o| o == name) {
            continue;
        }
        let kernel = parse(&std::fs::read_to_string(format!("{folder}/{name}.oxy")).unwrap()).unwrap();
        measure(&kernel, &target, &linker);
    }
}

fn measure(kernel: &Kernel, target: &HostTarget, linker: &Linker) {
    let mut compile_ms = f64::MAX;
    let mut link_ms = f64::MAX;
    let mut linked = None;
    for _ in 0..9 {
        let start = now();
        let object = compile(&[kernel], target).unwrap();
        compile_ms = compile_ms.min(now() * 1e3 - start * 1e3);
        let start = now();
        linked = Some(linker.link(object.as_bytes(), &[kernel.name.as_str()]).unwrap());
        link_ms = link_ms.min((now() - start) * 1e3);
    }
    let linked = linked.unwrap();
    let points: i64 = kernel.dims.iter().map(|d| d.extent).product();
    let mut buffers: Vec<Vec<u8>> = kernel
        .params
        .iter()
        .map(|p| (0..points as usize).flat_map(|i| element(p.dtype.itemsize(), i)).collect())
        .collect();
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = now();
        // SAFETY: the entry's signature; every buffer has an element per point of the kernel.
        unsafe {
            let entry: Entry = std::mem::transmute(linked.address(0).unwrap());
            entry(pointers.as_ptr(), 0, kernel.range());
        }
        best = best.min(now() - start);
    }
    let rate = points as f64 / best / 1e9;
    println!(
        "{:14} {:9.1} us  {rate:6.2} Gpoint/s  compile {compile_ms:5.2} ms  link {link_ms:4.2} ms",
        kernel.name,
        best * 1e6
    );
}

/// Small finite numbers in f32 or bf16.
fn element(size: usize, i: usize) -> Vec<u8> {
    let value = ((i * 37 % 1000) as f32 - 500.0) / 100.0;
    value.to_le_bytes()[4 - size.min(4)..].to_vec()
}
