//! Lowered programs computed by the kernel interpreter, against plain Rust.
//!
//! Only programs without operator calls can run here.

use oxy_graph::{DType, ValueId};
use oxy_loops::interp;
use oxy_lower::{Options, Step, lower};

type Any<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs a graph over float inputs given in memory order; gives the outputs in memory order (of their storage).
fn run(text: &str, inputs: &[Vec<f64>]) -> Any<Vec<Vec<f64>>> {
    let graph = oxy_graph::parse(text)?;
    let program = lower(&graph, &Options::default())?;
    let mut memory: Vec<Vec<u8>> = vec![Vec::new(); program.values.len()];
    for (id, values) in program.inputs.iter().zip(inputs) {
        memory[id.0 as usize] = write(program.values[id.0 as usize].dtype, values)?;
    }
    for step in &program.steps {
        match step {
            Step::Allocate { value } => {
                let meta = &program.values[value.0 as usize];
                // Something a forgotten store would not go unnoticed with.
                memory[value.0 as usize] = vec![0x7f; meta.numel() as usize * meta.dtype.itemsize()];
            }
            Step::Launch { kernel, buffers } => {
                let kernel = &program.kernels[*kernel as usize];
                oxy_loops::verify(kernel)?;
                let mut unique: Vec<ValueId> = buffers.clone();
                unique.sort_unstable();
                unique.dedup();
                let aliases: Vec<usize> = buffers.iter().filter_map(|b| unique.iter().position(|u| u == b)).collect();
                let mut bytes: Vec<Vec<u8>> =
                    unique.iter().map(|u| std::mem::take(&mut memory[u.0 as usize])).collect();
                interp::run(kernel, &mut bytes, &aliases, 0, kernel.range())?;
                for (u, bytes) in unique.iter().zip(bytes) {
                    memory[u.0 as usize] = bytes;
                }
            }
            Step::View { .. } => {}
            Step::Call { target, .. } => return Err(format!("{target} is called").into()),
        }
    }
    let out = |id: &ValueId| {
        let storage = program.storage[id.0 as usize];
        read(program.values[id.0 as usize].dtype, &memory[storage.0 as usize])
    };
    program.outputs.iter().map(out).collect()
}

fn write(dtype: DType, values: &[f64]) -> Any<Vec<u8>> {
    let mut bytes = vec![0; values.len() * dtype.itemsize()];
    for (x, chunk) in values.iter().zip(bytes.chunks_mut(dtype.itemsize())) {
        interp::write(dtype, interp::cast(interp::Value::F64(*x), compute(dtype)?), chunk)?;
    }
    Ok(bytes)
}

fn read(dtype: DType, bytes: &[u8]) -> Any<Vec<f64>> {
    bytes
        .chunks(dtype.itemsize())
        .map(|chunk| match interp::cast(interp::read(dtype, chunk)?, oxy_loops::Ty::F64) {
            interp::Value::F64(x) => Ok(x),
            other => Err(format!("{other:?} is not a float").into()),
        })
        .collect()
}

fn compute(dtype: DType) -> Any<oxy_loops::Ty> {
    Ok(oxy_ops::expr::compute_ty(dtype).ok_or("unsupported dtype")?)
}

/// Numbers with some variety.
fn numbers(n: usize) -> Vec<f64> {
    (0..n).map(|i| f64::from((((i * 7919 + 13) % 1000) as f32 - 500.0) / 250.0)).collect()
}

fn check(text: &str, inputs: &[Vec<f64>], expected: &[Vec<f64>], tolerance: f64) -> Any<()> {
    let found = run(text, inputs)?;
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            assert!((f - e).abs() <= tolerance || f == e, "element {i}: {f} instead of {e}");
        }
    }
    Ok(())
}

#[test]
fn an_elementwise_chain() -> Any<()> {
    let (x, y) = (numbers(20), numbers(5));
    let expected = (0..20).map(|i| (x[i] * 2.0 + y[i % 5]).max(0.0)).collect();
    let text = "graph(%0: f32[4, 5], %1: f32[5]) {
        %2: f32[4, 5] = aten.mul.Tensor(%0, 2)
        %3: f32[4, 5] = aten.add.Tensor(%2, %1)
        %4: f32[4, 5] = aten.relu.default(%3)
        return (%4)
    }";
    check(text, &[x, y], &[expected], 1e-6)
}

#[test]
fn softmax_over_either_dimension() -> Any<()> {
    let x = numbers(24);
    for (dim, step, len) in [(1, 1, 6), (0, 6, 4)] {
        let mut expected = vec![0.0; 24];
        for i in 0..24 {
            let first = if dim == 1 { i / 6 * 6 } else { i % 6 };
            let row: Vec<f64> = (0..len).map(|k| x[first + k * step].exp()).collect();
            expected[i] = x[i].exp() / row.iter().sum::<f64>();
        }
        let text = format!(
            "graph(%0: f32[4, 6]) {{
                %1: f32[4, 6] = aten._softmax.default(%0, {dim}, False)
                return (%1)
            }}"
        );
        check(&text, std::slice::from_ref(&x), &[expected], 1e-6)?;
    }
    Ok(())
}

#[test]
fn layer_norm_of_a_sum_that_is_returned_too() -> Any<()> {
    let (x, y, w) = (numbers(32), numbers(64)[32..].to_vec(), numbers(8));
    let sum: Vec<f64> = (0..32).map(|i| f64::from(x[i] as f32 + y[i] as f32)).collect();
    let mut expected = vec![0.0; 32];
    for (i, e) in expected.iter_mut().enumerate() {
        let row = &sum[i / 8 * 8..i / 8 * 8 + 8];
        let mean = row.iter().sum::<f64>() / 8.0;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 8.0;
        *e = (sum[i] - mean) / (variance + 1e-5).sqrt() * w[i % 8];
    }
    let text = "graph(%0: f32[4, 8], %1: f32[4, 8], %2: f32[8]) {
        %3: f32[4, 8] = aten.add.Tensor(%0, %1)
        %4: f32[4, 8], %5: f32[4, 1], %6: f32[4, 1] = aten.native_layer_norm.default(%3, [8], %2, None, 1e-5)
        return (%3, %4)
    }";
    check(text, &[x, y, w], &[sum, expected], 1e-5)
}

#[test]
fn views_inside_a_kernel() -> Any<()> {
    let x = numbers(24);
    // exp, then [4, 6] → [2, 2, 6] → [6, 2, 2] copied → [12, 2].
    let mut expected = Vec::new();
    for c in 0..6 {
        for a in 0..4 {
            expected.push(-x[a * 6 + c].exp());
        }
    }
    let text = "graph(%0: f32[4, 6]) {
        %1: f32[4, 6] = aten.exp.default(%0)
        %2: f32[2, 2, 6] = aten.view.default(%1, [2, 2, 6])
        %3: f32[6, 2, 2]{strides=[1, 12, 6]} = aten.permute.default(%2, [2, 0, 1])
        %4: f32[6, 2, 2] = aten.clone.default(%3)
        %5: f32[12, 2] = aten.view.default(%4, [12, 2])
        %6: f32[12, 2] = aten.neg.default(%5)
        return (%6)
    }";
    check(text, &[x], &[expected], 1e-5)
}

#[test]
fn narrow_floats_round_after_each_operator() -> Any<()> {
    let bf16 = |x: f32| half::bf16::from_f32(x).to_f32();
    let x: Vec<f64> = numbers(64).iter().map(|x| f64::from(bf16(*x as f32))).collect();
    let expected = x
        .iter()
        .map(|x| {
            // A multiplier stays float32, an addend is rounded.
            let product = bf16(*x as f32 * 0.1);
            f64::from(bf16(product + bf16(0.1)))
        })
        .collect();
    let text = "graph(%0: bf16[64]) {
        %1: bf16[64] = aten.mul.Tensor(%0, 0.1)
        %2: bf16[64] = aten.add.Tensor(%1, 0.1)
        return (%2)
    }";
    check(text, &[x], &[expected], 0.0)
}

#[test]
fn signed_zero_and_nan_survive_relu_and_clamp() -> Any<()> {
    let found = run(
        "graph(%0: f32[3]) {
            %1: f32[3] = aten.relu.default(%0)
            %2: f32[3] = aten.clamp.default(%0, 0, 1)
            return (%1, %2)
        }",
        &[vec![-0.0, f64::NAN, -1.0]],
    )?;
    for result in found {
        assert!(result[0] == 0.0 && result[0].is_sign_negative());
        assert!(result[1].is_nan());
        assert_eq!(result[2], 0.0);
    }
    Ok(())
}

#[test]
fn reductions_keep_their_memory_order() -> Any<()> {
    // Sizes [2, 3, 2, 2], channels last: the mean over the image, and the sum over channels.
    let x = numbers(24);
    let at = |n: usize, c: usize, p: usize| x[n * 12 + p * 3 + c];
    let mean = (0..6).map(|i| (0..4).map(|p| at(i / 3, i % 3, p)).sum::<f64>() / 4.0).collect();
    let sum = (0..8).map(|i| (0..3).map(|c| at(i / 4, c, i % 4)).sum::<f64>()).collect();
    let text = "graph(%0: f32[2, 3, 2, 2]{strides=[12, 1, 6, 3]}) {
        %1: f32[2, 3] = aten.mean.dim(%0, [2, 3])
        %2: f32[2, 2, 2] = aten.sum.dim_IntList(%0, [1])
        return (%1, %2)
    }";
    check(text, &[x], &[mean, sum], 1e-5)
}

#[test]
fn variance_and_its_correction() -> Any<()> {
    let x = numbers(40);
    let variance = |correction: f64| {
        x.chunks(10)
            .map(|row| {
                let mean = row.iter().sum::<f64>() / 10.0;
                row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (10.0 - correction)
            })
            .collect::<Vec<f64>>()
    };
    let text = "graph(%0: f32[4, 10]) {
        %1: f32[4] = aten.var.correction(%0, [1])
        %2: f32[4] = aten.var.correction(%0, [1], correction=0)
        return (%1, %2)
    }";
    check(text, std::slice::from_ref(&x), &[variance(1.0), variance(0.0)], 1e-6)
}

#[test]
fn concatenation_and_slices() -> Any<()> {
    let (x, y) = (numbers(8), numbers(12));
    let mut expected = Vec::new();
    for row in 0..4 {
        expected.extend([-x[row * 2], -x[row * 2 + 1], y[row * 3], y[row * 3 + 1], y[row * 3 + 2]]);
    }
    let doubled = (0..4).map(|row| expected[row * 5 + 1] + expected[row * 5 + 3]).collect();
    let text = "graph(%0: f32[4, 2], %1: f32[4, 3]) {
        %2: f32[4, 2] = aten.neg.default(%0)
        %3: f32[4, 5] = aten.cat.default([%2, %1], 1)
        %4: f32[4]{strides=[5], offset=1} = aten.select.int(%3, 1, 1)
        %5: f32[4]{strides=[5], offset=3} = aten.select.int(%3, 1, 3)
        %6: f32[4] = aten.add.Tensor(%4, %5)
        return (%3, %6)
    }";
    check(text, &[x, y], &[expected, doubled], 1e-6)
}

#[test]
fn in_place_operators_on_new_tensors() -> Any<()> {
    let x = numbers(6);
    let text = "graph(%0: f32[2, 3]) {
        %1: f32[2, 3] = aten.mul.Tensor(%0, 2)
        %2: f32[2, 3] = aten.add.Tensor(%1, 1)
        %1 = aten.add_.Tensor(%1, 5)
        %3: f32[3, 2]{strides=[1, 3]} = aten.t.default(%1)
        %3 = aten.mul_.Tensor(%3, 3)
        return (%1, %2, %3)
    }";
    let first: Vec<f64> = x.iter().map(|x| (x * 2.0 + 5.0) * 3.0).collect();
    let second = x.iter().map(|x| x * 2.0 + 1.0).collect();
    check(text, &[x], &[first.clone(), second, first], 1e-5)
}

#[test]
fn a_reduction_that_another_one_needs_elsewhere() -> Any<()> {
    // Rows and columns of one matrix: the column sums must be in memory before the rows can use them.
    let x = numbers(16);
    let row = |i: usize| (0..4).map(|k| x[i * 4 + k]).sum::<f64>();
    let column = |j: usize| (0..4).map(|k| x[k * 4 + j]).sum::<f64>();
    let expected = (0..16).map(|i| row(i / 4) * column(i % 4)).collect();
    let text = "graph(%0: f32[4, 4]) {
        %1: f32[4, 1] = aten.sum.dim_IntList(%0, [1], True)
        %2: f32[1, 4] = aten.sum.dim_IntList(%0, [0], True)
        %3: f32[4, 4] = aten.mul.Tensor(%1, %2)
        return (%3)
    }";
    check(text, &[x], &[expected], 1e-5)
}

#[test]
fn integers_wrap_and_divide_by_constants() -> Any<()> {
    let x: Vec<f64> = [-7, -1, 0, 5, 100, 127].map(f64::from).to_vec();
    let floor = x.iter().map(|x| (x / 3.0).floor()).collect();
    let doubled = x.iter().map(|x| f64::from((*x as i8).wrapping_mul(2))).collect();
    let text = "graph(%0: i8[6]) {
        %1: i8[6] = aten.floor_divide.default(%0, 3)
        %2: i8[6] = aten.mul.Tensor(%0, 2)
        return (%1, %2)
    }";
    check(text, &[x], &[floor, doubled], 0.0)
}

#[test]
fn long_chains_are_cut() -> Any<()> {
    let mut text = "graph(%0: f32[8]) {\n".to_owned();
    for i in 0..1000 {
        text += &format!("%{}: f32[8] = aten.add.Tensor(%{i}, 1)\n", i + 1);
    }
    text += "return (%1000)\n}";
    let expected = numbers(8).iter().map(|x| x + 1000.0).collect();
    check(&text, &[numbers(8)], &[expected], 1e-3)
}

#[test]
fn the_same_work_at_many_places_is_not_repeated() -> Any<()> {
    // y[i] = y[i] / 2 + y[i+1] / 2, forty times: without sharing, 2^40 loads.
    let mut text = "graph(%0: f32[64]) {\n".to_owned();
    let mut id = 0;
    let mut n = 64;
    let mut last = 0;
    let mut expected = numbers(64);
    for _ in 0..40 {
        n -= 1;
        let (a, b) = (id + 1, id + 2);
        text += &format!("%{a}: f32[{n}] = aten.slice.Tensor(%{last}, 0, 0, {n})\n");
        text += &format!("%{b}: f32[{n}]{{offset=1}} = aten.slice.Tensor(%{last}, 0, 1, {})\n", n + 1);
        text += &format!("%{}: f32[{n}] = aten.add.Tensor(%{a}, %{b})\n", id + 3);
        text += &format!("%{}: f32[{n}] = aten.mul.Tensor(%{}, 0.5)\n", id + 4, id + 3);
        text += &format!("%{}: f32[{n}] = aten.tanh.default(%{})\n", id + 5, id + 4);
        id += 5;
        last = id;
        expected = expected.windows(2).map(|w| ((w[0] + w[1]) * 0.5).tanh()).collect();
    }
    text += &format!("return (%{last})\n}}");
    check(&text, &[numbers(64)], &[expected], 1e-5)
}
