//! Explicit kernels: machine code equals the reference interpreter.

mod common;
use common::*;

const RELU: &str = "
kernel relu
  p0 f32
  p1 f32
  p2 f32 written
  d0 parallel 5000
  vector d0
  split vector
point
  v0 f32 = load p0[d0]
  v1 f32 = float 2.0
  v2 f32 = mul v0 v1
  v3 f32 = load p1[d0]
  v4 f32 = add v2 v3
  v5 f32 = relu v4
  p2[d0] <- v5
end";

#[test]
fn pointwise_ranges_and_tails() {
    let kernel = kernel(RELU);
    let code = Code::new(&kernel);
    let mut rng = Rng(1);
    let data: Vec<Vec<u8>> = (0..3).map(|_| random_buffer(&mut rng, oxy_graph::DType::F32, 5000)).collect();
    for n in 0..=140 {
        check_aliased(&kernel, &code, &data, &[0, 1, 2], &[(7, 7 + n)]);
    }
    check_aliased(&kernel, &code, &data, &[0, 1, 2], &[(0, 1234), (1234, 1235), (1235, 5000)]);
    // In place.
    check_aliased(&kernel, &code, &data, &[0, 1, 0], &[(0, 5000)]);
}
