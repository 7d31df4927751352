//! Explicit kernels: machine code equals the reference interpreter; sums are as accurate as they should be.

mod common;
use common::*;
use oxy_codegen::{CodegenError, HostTarget, Linker, Object, assembly, compile, link};
use oxy_graph::DType;
use oxy_loops::{Kernel, interp};

/// A kernel of `oxy_loops/tests/kernels`.
fn golden(name: &str) -> Kernel {
    let path = format!("{}/../oxy_loops/tests/kernels/{name}.oxy", env!("CARGO_MANIFEST_DIR"));
    kernel(&std::fs::read_to_string(path).unwrap())
}

/// A golden kernel with parts of its text replaced.
fn variant(name: &str, changes: &[(&str, &str)]) -> Kernel {
    let mut text = golden(name).to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    kernel(&text)
}

fn random(seed: u64, dtype: DType, len: usize) -> Vec<u8> {
    random_buffer(&mut Rng(seed), dtype, len)
}

/// f32 values from -scale to scale.
fn uniform(seed: u64, len: usize, scale: f32) -> Vec<u8> {
    let mut rng = Rng(seed);
    f32s((0..len).map(|_| (rng.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0) * scale))
}

fn run(kernel: &Kernel, buffers: &mut [Vec<u8>]) {
    let aliases: Vec<usize> = (0..buffers.len()).collect();
    Code::new(kernel).run(buffers, &aliases, 0, kernel.range());
}

#[test]
fn pointwise_ranges_and_tails() {
    let kernel = golden("relu");
    let code = Code::new(&kernel);
    let data: Vec<Vec<u8>> = (1..4).map(|seed| random(seed, DType::F32, 5000)).collect();
    for n in 0..=140 {
        check_aliased(&kernel, &code, &data, &[0, 1, 2], &[(7, 7 + n)]);
    }
    check_aliased(&kernel, &code, &data, &[0, 1, 2], &[(0, 1234), (1234, 1235), (1235, 5000)]);
    // In place.
    check_aliased(&kernel, &code, &data, &[0, 1, 0], &[(0, 5000)]);
}

#[test]
fn tails_of_every_dtype() {
    for dtype in ["f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "i64", "bool"] {
        let storage = DType::from_name(dtype).unwrap();
        let ty = oxy_loops::Ty::of(storage).unwrap().name();
        let op = if ty == "bool" { "xor" } else { "sub" };
        let kernel = kernel(&format!(
            "kernel f\n p0 {dtype}\n p1 {dtype} written\n d0 parallel 200\n vector d0\n split vector\npoint\n \
             v0 {ty} = load p0[d0]\n v1 {ty} = load p0[1]\n v2 {ty} = {op} v0 v1\n p1[1 + d0] <- v2\nend"
        ));
        let code = Code::new(&kernel);
        let data = [random(3, storage, 201), random(4, storage, 202)];
        for n in 0..=40 {
            check_aliased(&kernel, &code, &data, &[0, 1], &[(n % 7, n % 7 + n)]);
        }
        check_aliased(&kernel, &code, &data, &[0, 1], &[(0, 200)]);
    }
}

#[test]
fn rows_of_every_length() {
    for n in 0..=70 {
        let changes = [("d1 parallel 33", format!("d1 parallel {n}")), ("parallel 50", "parallel 3".into())];
        let changes: Vec<(&str, &str)> = changes.iter().map(|(a, b)| (*a, b.as_str())).collect();
        let kernel = variant("cat", &changes);
        check(&kernel, &[random(1, DType::F32, 200), random(2, DType::F32, 200), random(3, DType::F32, 200)]);
    }
}

#[test]
fn data_movement() {
    check(&golden("transpose"), &[random(1, DType::F32, 60000), random(2, DType::F32, 60000)]);
    // Exactly the elements there are: reading past a source would be out of bounds.
    check(&golden("cat"), &[random(1, DType::F32, 500), random(2, DType::F32, 1150), vec![0; 1650 * 4]]);
    let mut rng = Rng(9);
    let mut indices = |n: usize| (0..n).flat_map(|_| (rng.below(12) as i64).to_le_bytes()).collect::<Vec<u8>>();
    check(&golden("embedding"), &[indices(40), random(3, DType::F32, 840), vec![0; 2800 * 4]]);
    check(&golden("gather"), &[indices(1000), random(4, DType::BF16, 26), vec![0; 2000]]);
    for value in [3.7, -3.7, f64::NAN, 1e300, -0.0] {
        check(&golden("scalar"), &[f64::to_le_bytes(value).to_vec(), vec![0; 4]]);
    }
}

#[test]
fn functions_are_close_in_kernels() {
    for (name, f) in [
        (
            "gelu_tanh",
            (|x: f64| 0.5 * x * (1.0 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())) as fn(f64) -> f64,
        ),
        ("gelu_erf", |x| 0.5 * x * (1.0 + libm_erf(x / 2f64.sqrt()))),
    ] {
        let kernel = golden(name);
        let code = Code::new(&kernel);
        let mut buffers = [uniform(6, 3001, 5.0), vec![0; 3001 * 4]];
        code.run(&mut buffers, &[0, 1], 0, 3001);
        for (x, y) in to_f32s(&buffers[0]).into_iter().zip(to_f32s(&buffers[1])) {
            let want = f(x.into());
            // 1 + tanh cancels for negative x: the error is relative to x, as eager's is.
            assert!((f64::from(y) - want).abs() <= 3e-7 * f64::from(x.abs()), "{name}({x}) = {y}, not {want}");
        }
    }
}

fn libm_erf(x: f64) -> f64 {
    interp::function(oxy_loops::ScalarOp::Erf, x, 0.0).unwrap()
}

#[test]
fn softmax_rows() {
    for cols in [1, 5, 8, 31, 32, 40, 100, 1024] {
        let text = golden("softmax").to_string().replace("1024", &cols.to_string()).replace("2048", "4");
        let kernel = kernel(&text);
        let n = 4 * cols as usize;
        let mut buffers = [uniform(7, n, 8.0), vec![0; n * 4]];
        run(&kernel, &mut buffers);
        let (xs, ys) = (to_f32s(&buffers[0]), to_f32s(&buffers[1]));
        for (x, y) in xs.chunks(cols as usize).zip(ys.chunks(cols as usize)) {
            let top = x.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let exps: Vec<f64> = x.iter().map(|v| f64::from(v - top).exp()).collect();
            let sum: f64 = exps.iter().sum();
            for (e, y) in exps.iter().zip(y) {
                assert!((f64::from(*y) - e / sum).abs() <= 4e-7 * (e / sum), "{cols}: {y}, not {}", e / sum);
            }
        }
    }
}

#[test]
fn softmax_propagates_nan_and_infinity() {
    let text = golden("softmax").to_string().replace("1024", "40").replace("2048", "3");
    let mut xs = to_f32s(&uniform(8, 120, 1.0));
    xs[35] = f32::NAN;
    xs[41] = f32::INFINITY;
    xs[90] = f32::NEG_INFINITY;
    let mut buffers = [f32s(xs), vec![0; 480]];
    run(&kernel(&text), &mut buffers);
    let ys = to_f32s(&buffers[1]);
    assert!(ys[..80].iter().all(|y| y.is_nan() || *y == 0.0) && ys[0].is_nan() && ys[41].is_nan());
    assert!(ys[80..].iter().all(|y| y.is_finite()) && ys[90] == 0.0);
}

#[test]
fn layer_norm_rows() {
    let text = golden("layer_norm").to_string().replace("4096", "3");
    let mut buffers = [uniform(1, 3 * 768, 3.0), uniform(2, 768, 1.0), uniform(3, 768, 1.0), vec![0; 3 * 768 * 4]];
    run(&kernel(&text), &mut buffers);
    let [x, w, b, y] = &buffers.each_ref().map(|b| to_f32s(b));
    for (x, y) in x.chunks(768).zip(y.chunks(768)) {
        let wide: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let mean = wide.iter().sum::<f64>() / 768.0;
        let variance = wide.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 768.0;
        for i in 0..768 {
            let want = (wide[i] - mean) / (variance + 1e-5).sqrt() * f64::from(w[i]) + f64::from(b[i]);
            assert!((f64::from(y[i]) - want).abs() < 1e-6, "{i}: {}, not {want}", y[i]);
        }
    }
}

/// Error of a sum of positive numbers in ulp: naive summation of n has hundreds.
fn sum_error(got: f32, values: impl Iterator<Item = f32>) -> f64 {
    let want: f64 = values.map(f64::from).sum();
    (f64::from(got) - want).abs() / want / 2f64.powi(-24)
}

#[test]
fn long_sums_are_accurate() {
    // A row.
    let n = 1_000_003usize;
    let text = golden("sum_rows").to_string().replace("1024", &n.to_string()).replace("2048", "1");
    let xs: Vec<f32> = to_f32s(&uniform(4, n, 1.0)).into_iter().map(|x| x + 1.5).collect();
    let mut buffers = [f32s(xs.iter().copied()), vec![0; 4]];
    run(&kernel(&text), &mut buffers);
    let error = sum_error(to_f32s(&buffers[1])[0], xs.iter().copied());
    assert!(error < 4.0, "row: {error}");

    // Columns, and the same without a vector dimension.
    let text = golden("sum_columns").to_string().replace("1024", "11").replace("2048", "90000");
    let scalar = text.replace("  vector d1\n", "").replace("split vector", "split outer");
    for text in [text, scalar] {
        let mut buffers = [f32s(xs[..990_000].iter().copied()), vec![0; 44]];
        run(&kernel(&text), &mut buffers);
        for (c, got) in to_f32s(&buffers[1]).into_iter().enumerate() {
            let error = sum_error(got, xs[..990_000].iter().skip(c).step_by(11).copied());
            assert!(error < 6.0, "column {c}: {error}");
        }
    }

    // Many short loops inside each other.
    for vector in ["  vector d3\n", "  vector d2\n", ""] {
        let kernel = kernel(&format!(
            "kernel f\n p0 f32\n p1 f32 written\n d0 reduce 60\n d1 reduce 50\n d2 reduce 30\n d3 parallel 11\n s0 f32\n{vector}\
             loop\n v0 f32 = load p0[16500*d0 + 330*d1 + 11*d2 + d3]\n s0 <- sum v0\npoint\n v0 f32 = slot s0\n p1[d3] <- v0\nend"
        ));
        let mut buffers = [f32s(xs[..990_000].iter().copied()), vec![0; 44]];
        run(&kernel, &mut buffers);
        for (c, got) in to_f32s(&buffers[1]).into_iter().enumerate() {
            let error = sum_error(got, xs[..990_000].iter().skip(c).step_by(11).copied());
            assert!(error < 6.0, "{vector}column {c}: {error}");
        }
    }
}

#[test]
fn column_sums_split_anywhere() {
    let text = golden("sum_columns").to_string().replace("1024", "101").replace("2048", "70");
    let kernel = kernel(&text);
    let code = Code::new(&kernel);
    // Small integers: exact in any order.
    let mut rng = Rng(3);
    let data = [f32s((0..7070).map(|_| rng.below(9) as f32)), vec![0; 404]];
    check_aliased(&kernel, &code, &data, &[0, 1], &[(0, 101)]);
    check_aliased(&kernel, &code, &data, &[0, 1], &[(90, 101), (0, 3), (3, 90), (50, 50)]);
}

#[test]
fn sums_over_several_dimensions() {
    // Channels of an image: reduce batch and pixels, in every place the vector dimension can be.
    for (vector, split) in [("d2", "outer"), ("d0", "outer"), ("d1", "outer"), ("d1", "vector")] {
        let kernel = kernel(&format!(
            "kernel f\n p0 f32\n p1 f32 written\n d0 reduce 6\n d1 parallel 5\n d2 reduce 77\n s0 f32\n s1 f32\n \
             vector {vector}\n split {split}\nloop\n v0 f32 = load p0[385*d0 + 77*d1 + d2]\n s0 <- sum v0\n s1 <- min v0\npoint\n \
             v0 f32 = slot s0\n v1 f32 = slot s1\n v2 f32 = sub v0 v1\n p1[d1] <- v2\nend"
        ));
        let mut rng = Rng(3);
        check(&kernel, &[f32s((0..2310).map(|_| rng.below(9) as f32)), vec![0; 20]]);
    }
}

#[test]
fn empty_dimensions() {
    let text = golden("sum_rows").to_string();
    let no_columns = text.replace("1024", "0").replace("2048", "3");
    check(&kernel(&no_columns), &[vec![], vec![7; 12]]);
    let no_rows = text.replace("2048", "0");
    check(&kernel(&no_rows), &[vec![], vec![]]);
    check(&variant("cat", &[("d1 parallel 33", "d1 parallel 0")]), &[vec![], vec![], vec![]]);
    check(&variant("cat", &[("d0 parallel 50", "d0 parallel 0")]), &[vec![], vec![], vec![]]);
}

#[test]
fn narrow_floats_round_like_the_interpreter() {
    // Every bf16 and f16, and the f32 values around every rounding boundary of theirs.
    let mut values = Vec::new();
    for bits in 0..=u16::MAX {
        for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
            values.push(f32::from_bits(u32::from(bits) << 16 | low));
        }
        let half = half::f16::from_bits(bits).to_f32();
        for step in [0i32, 1, -1, 0x0fff, 0x1000, 0x1001] {
            values.push(f32::from_bits(half.to_bits().wrapping_add_signed(step)));
        }
    }
    let n = values.len();
    for dtype in ["bf16", "f16"] {
        let kernel = kernel(&format!(
            "kernel f\n p0 f32\n p1 {dtype} written\n p2 f32 written\n d0 parallel {n}\n vector d0\n split vector\npoint\n \
             v0 f32 = load p0[d0]\n v1 f32 = round {dtype} v0\n p1[d0] <- v0\n p2[d0] <- v1\nend"
        ));
        let buffers = [f32s(values.iter().copied()), vec![0; 2 * n], vec![0; 4 * n]];
        check(&kernel, &buffers);
        // The same without conversion instructions.
        let baseline = Code::for_target(&kernel, &HostTarget::with_cpu("x86-64").unwrap());
        check_aliased(&kernel, &baseline, &buffers, &[0, 1, 2], &[(0, n as i64)]);
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let widen = common::kernel(&format!(
            "kernel g\n p0 {dtype}\n p1 f32 written\n d0 parallel 65536\n vector d0\n split vector\npoint\n \
             v0 f32 = load p0[d0]\n p1[d0] <- v0\nend"
        ));
        let buffers = [all, vec![0; 4 * 65536]];
        check(&widen, &buffers);
        let baseline = Code::for_target(&widen, &HostTarget::with_cpu("x86-64").unwrap());
        check_aliased(&widen, &baseline, &buffers, &[0, 1], &[(0, 65536)]);
    }
}

#[test]
fn products_and_sums_are_not_contracted() {
    let kernel = kernel(
        "kernel f\n p0 f32\n p1 f32 written\n d0 parallel 16\n vector d0\n split vector\npoint\n v0 f32 = load p0[d0]\n \
         v1 f32 = mul v0 v0\n v2 f32 = float -1.0\n v3 f32 = add v1 v2\n p1[d0] <- v3\nend",
    );
    let x = 1.1f32;
    let mut buffers = [f32s([x; 16]), vec![0; 64]];
    run(&kernel, &mut buffers);
    assert!(to_f32s(&buffers[1]).iter().all(|y| *y == x * x - 1.0 && *y != x.mul_add(x, -1.0)));
    let text = assembly(&kernel, &HostTarget::with_cpu("haswell").unwrap()).unwrap();
    assert!(text.contains("vmulps") && !text.contains("vfmadd"), "{text}");
}

#[test]
fn many_kernels_compile_together_and_are_unloaded() {
    let text = golden("relu").to_string();
    let kernels: Vec<Kernel> = (0..12)
        .map(|i| kernel(&text.replace("kernel relu", &format!("kernel relu{i}")).replace("2.0", &format!("{i}.0"))))
        .collect();
    let refs: Vec<&Kernel> = kernels.iter().collect();
    let object = compile(&refs, &target()).unwrap();
    let linker = Linker::new().unwrap();
    let names: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
    for _ in 0..3 {
        let linked = linker.link(object.as_bytes(), &names).unwrap();
        let mut addresses = linked.addresses().to_vec();
        addresses.dedup();
        assert_eq!(addresses.len(), 12);
    }
    assert!(matches!(linker.link(object.as_bytes(), &["nothing"]), Err(CodegenError::Llvm(_))));
    assert!(matches!(link(object.as_bytes(), &["nothing"]), Err(CodegenError::Llvm(_))));
    assert!(linker.link(object.as_bytes(), &names).is_ok());
    assert!(matches!(compile(&[refs[0], refs[0]], &target()), Err(CodegenError::DuplicateName(_))));
}

#[test]
fn threads_compile_and_link_at_once() {
    let linker = Linker::new().unwrap();
    let kernel = golden("layer_norm");
    let compiled: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let work = || {
            let object = compile(&[&kernel], &target()).unwrap();
            for _ in 0..10 {
                linker.link(object.as_bytes(), &["layer_norm"]).unwrap();
            }
            object.as_bytes().to_vec()
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(compiled.windows(2).all(|pair| pair[0] == pair[1]), "the same kernel gives the same bytes");
}

#[test]
fn damaged_objects_are_refused() {
    let object: Object = compile(&[&golden("scalar")], &target()).unwrap();
    let bytes = object.as_bytes();
    for damaged in [&bytes[1..], &bytes[..bytes.len() - 1], &bytes[..10], b""] {
        assert!(link(damaged, &["scalar"]).is_err());
    }
    let mut bytes = bytes.to_vec();
    bytes[16..32].fill(0);
    assert!(link(&bytes, &["scalar"]).is_err());
}

#[test]
fn every_target_compiles_every_golden() {
    for cpu in ["haswell", "x86-64", "x86-64-v4", "znver4", "sapphirerapids"] {
        let target = HostTarget::with_cpu(cpu).unwrap();
        for name in ["relu", "gelu_erf", "softmax", "layer_norm", "sum_columns", "silu_mul_bf16", "cat", "gather"] {
            assembly(&golden(name), &target).unwrap();
        }
    }
    let wide = assembly(&golden("relu"), &HostTarget::with_cpu("znver4").unwrap()).unwrap();
    assert!(wide.contains("zmm"), "{wide}");
    assert!(HostTarget::with_cpu("z80").is_err());
    assert_ne!(HostTarget::detect().key(), HostTarget::with_cpu("sapphirerapids").unwrap().key());
}
