//! Helpers of the code generation tests: run a kernel in machine code and in the reference interpreter.
#![allow(dead_code, reason = "each test binary uses some of these")]

use oxy_codegen::{HostTarget, Linked, Linker, compile};
use oxy_graph::DType;
use oxy_loops::{Kernel, interp, parse};

/// The machine under test; OXY_TEST_CPU names another one.
pub fn target() -> HostTarget {
    match std::env::var("OXY_TEST_CPU") {
        Ok(cpu) => HostTarget::with_cpu(&cpu).unwrap(),
        Err(_) => HostTarget::detect(),
    }
}

pub type Entry = unsafe extern "C" fn(*const *mut u8, i64, i64);

/// A compiled kernel.
pub struct Code {
    linked: Linked,
}

impl Code {
    pub fn new(kernel: &Kernel) -> Code {
        Code::for_target(kernel, &target())
    }

    pub fn for_target(kernel: &Kernel, target: &HostTarget) -> Code {
        let object = compile(&[kernel], target).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        let linker = Linker::new().unwrap();
        Code { linked: linker.link(object.as_bytes(), &[kernel.name.as_str()]).unwrap() }
    }

    /// Runs lo..hi; parameter i is `buffers[aliases[i]]`.
    pub fn run(&self, buffers: &mut [Vec<u8>], aliases: &[usize], lo: i64, hi: i64) {
        let bases: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr()).collect();
        let pointers: Vec<*mut u8> = aliases.iter().map(|i| bases[*i]).collect();
        // SAFETY: the entry has this signature; the interpreter has bounds-checked the same accesses.
        unsafe {
            let entry: Entry = std::mem::transmute(self.linked.address(0).unwrap());
            entry(pointers.as_ptr(), lo, hi);
        }
    }
}

/// Machine code and interpreter over lo..hi: every buffer must end up equal, bit for bit (NaN equals NaN).
pub fn check_range(kernel: &Kernel, buffers: &[Vec<u8>], lo: i64, hi: i64) {
    let aliases: Vec<usize> = (0..kernel.params.len()).collect();
    check_aliased(kernel, &Code::new(kernel), buffers, &aliases, &[(lo, hi)]);
}

pub fn check(kernel: &Kernel, buffers: &[Vec<u8>]) {
    check_range(kernel, buffers, 0, kernel.range());
}

pub fn check_aliased(kernel: &Kernel, code: &Code, buffers: &[Vec<u8>], aliases: &[usize], ranges: &[(i64, i64)]) {
    let mut expected = buffers.to_vec();
    let mut found = buffers.to_vec();
    for (lo, hi) in ranges {
        interp::run(kernel, &mut expected, aliases, *lo, *hi).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        code.run(&mut found, aliases, *lo, *hi);
    }
    for (p, param) in kernel.params.iter().enumerate() {
        let size = param.dtype.itemsize();
        let pairs = expected[aliases[p]].chunks(size).zip(found[aliases[p]].chunks(size));
        for (i, (want, got)) in pairs.enumerate() {
            if want != got && !(is_nan(param.dtype, want) && is_nan(param.dtype, got)) {
                let show = |bytes| interp::read(param.dtype, bytes).unwrap();
                panic!(
                    "p{p}[{i}]: {:?} where {:?} is right ({got:x?}, {want:x?}), ranges {ranges:?}\n{kernel}",
                    show(got),
                    show(want)
                );
            }
        }
    }
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    match interp::read(dtype, bytes) {
        Ok(interp::Value::F32(v)) => v.is_nan(),
        Ok(interp::Value::F64(v)) => v.is_nan(),
        _ => false,
    }
}

pub fn kernel(text: &str) -> Kernel {
    let kernel = parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    oxy_loops::verify(&kernel).unwrap_or_else(|e| panic!("{e}\n{text}"));
    kernel
}

/// xorshift64*: deterministic, good enough for test data.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A float around 1, seldom a special value.
    pub fn float(&mut self) -> f64 {
        const SPECIAL: [f64; 8] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, -3e38, 0.5];
        match self.below(16) {
            0 => self.pick(&SPECIAL),
            _ => (self.below(1 << 20) as f64 / (1 << 16) as f64 - 8.0) * 1.37,
        }
    }
}

pub fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

pub fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// `len` elements of a dtype: floats, small integers or bools.
pub fn random_buffer(rng: &mut Rng, dtype: DType, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len * dtype.itemsize()];
    for element in bytes.chunks_mut(dtype.itemsize()) {
        let value = match dtype {
            d if d.is_floating_point() => interp::Value::F64(rng.float()),
            DType::Bool => interp::Value::Bool(rng.below(2) == 1),
            _ => interp::Value::I64(rng.below(41) as i64 - 20),
        };
        interp::write(dtype, value, element).unwrap();
    }
    bytes
}
