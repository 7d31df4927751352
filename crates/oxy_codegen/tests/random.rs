//! Random kernels: machine code equals the reference interpreter bit for bit, and the text form round-trips.

mod common;
use common::*;
use oxy_graph::DType;
use oxy_loops::{
    Body, Dim, DimKind, Expr, Index, Kernel, Param, Phase, ReduceOp, Reduction, ScalarOp, Split, Store, Ty, V,
};

const DTYPES: &[DType] = &[
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I64,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::Bool,
];

/// Operators with exact results.
fn exact_ops() -> Vec<ScalarOp> {
    use ScalarOp::*;
    let is_function = |op: &ScalarOp| oxy_loops::interp::function(*op, 0.5, 0.5).is_ok();
    ScalarOp::all().filter(|op| !is_function(op) && *op != Copysign).collect()
}

struct Generator {
    rng: Rng,
    kernel: Kernel,
    /// Elements each parameter needs.
    lens: Vec<i64>,
    ops: Vec<ScalarOp>,
    /// Positions of I64 index parameters, whose values are 0..8.
    index_params: Vec<u32>,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let rank = rng.below(4) as usize;
        let is_vector_last = rng.below(4) != 0;
        let mut dims = Vec::new();
        for d in 0..rank {
            let extent = if d + 1 == rank && is_vector_last { rng.below(90) } else { rng.below(7) };
            let extent = if extent == 0 && rng.below(3) != 0 { 5 } else { extent } as i64;
            let kind = if rng.below(3) == 0 { DimKind::Reduce } else { DimKind::Parallel };
            dims.push(Dim { extent, kind });
        }
        let vector_dim = match rank {
            0 => None,
            n if is_vector_last => Some(n as u32 - 1),
            n => (rng.below(5) != 0).then(|| rng.below(n as u64) as u32),
        };
        let is_parallel = vector_dim.is_some_and(|d| dims[d as usize].kind == DimKind::Parallel);
        let split = if is_parallel && rng.below(2) == 0 { Split::Vector } else { Split::Outer };
        let name = format!("random{seed}");
        let kernel = Kernel { name, params: vec![], dims, vector_dim, phases: vec![], slots: vec![], split };
        Generator { rng, kernel, lens: vec![], ops: exact_ops(), index_params: vec![] }
    }

    fn param(&mut self, dtype: DType, written: bool) -> u32 {
        self.kernel.params.push(Param { dtype, written });
        self.lens.push(1);
        self.kernel.params.len() as u32 - 1
    }

    fn need(&mut self, param: u32, index: &Index, extra: i64) {
        let dims = self.kernel.dims.iter().zip(&index.strides);
        let last: i64 = index.base + extra + dims.map(|(d, s)| s * (d.extent - 1).max(0)).sum::<i64>();
        let len = &mut self.lens[param as usize];
        *len = (*len).max(last + 1);
    }

    /// Row-major over the open dimensions, in a random order; so that no two points share an element.
    fn store_index(&mut self, is_loop: bool) -> Index {
        let rank = self.kernel.dims.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if self.rng.below(3) == 0 {
            order.reverse();
        }
        let mut strides = vec![0; rank];
        let mut stride = 1;
        for d in order.into_iter().rev() {
            let dim = self.kernel.dims[d];
            if is_loop || dim.kind == DimKind::Parallel {
                strides[d] = stride;
                stride *= dim.extent.max(1);
            }
        }
        Index { base: self.rng.below(3) as i64, strides: strides.into(), indirect: vec![] }
    }

    fn load_index(&mut self, is_loop: bool) -> Index {
        let mut index = self.store_index(is_loop);
        for stride in &mut index.strides {
            match self.rng.below(5) {
                0 => *stride = 0,
                1 => *stride = (*stride).min(2) * 3,
                _ => {}
            }
        }
        index
    }

    fn pick(&mut self, body: &Body, ty: Ty) -> Option<V> {
        let found: Vec<u32> = (0..body.types.len()).filter(|i| body.types[*i] == ty).map(|i| i as u32).collect();
        (!found.is_empty()).then(|| V(self.rng.pick(&found)))
    }

    fn load(&mut self, body: &mut Body, is_loop: bool) {
        let mut index = self.load_index(is_loop);
        if self.rng.below(5) == 0 && !self.index_params.is_empty() {
            let param = self.rng.pick(&self.index_params.clone());
            let inner = self.load_index(is_loop);
            self.need(param, &inner, 0);
            let v = body.push(Expr::Load { param, index: inner, mask: None }, Ty::I64);
            index.indirect.push((v, 1 + self.rng.below(5) as i64));
        }
        let mask = if self.rng.below(4) == 0 { self.pick(body, Ty::Bool) } else { None };
        let reuse = self.rng.below(2) == 0 && !self.kernel.params.is_empty();
        let param = if reuse {
            self.rng.below(self.kernel.params.len() as u64) as u32
        } else {
            let dtype = self.rng.pick(DTYPES);
            self.param(dtype, false)
        };
        if self.kernel.params[param as usize].written {
            return;
        }
        let extra: i64 = index.indirect.iter().map(|(_, stride)| 7 * stride).sum();
        self.need(param, &index, extra);
        let ty = Ty::of(self.kernel.params[param as usize].dtype).unwrap();
        body.push(Expr::Load { param, index, mask }, ty);
    }

    fn expr(&mut self, body: &mut Body, is_loop: bool, slots: &[bool]) {
        match self.rng.below(14) {
            0 => {
                let value = self.rng.float();
                let ty = self.rng.pick(&[Ty::F32, Ty::F64]);
                body.push(Expr::Float(value.to_bits()), ty);
            }
            1 => {
                let value = self.rng.below(9) as i64 - 4;
                let ty = self.rng.pick(&[Ty::I32, Ty::I64, Ty::Bool]);
                body.push(Expr::Int(value), ty);
            }
            2 => {
                let open: Vec<u32> = (0..self.kernel.dims.len() as u32)
                    .filter(|d| is_loop || self.kernel.dims[*d as usize].kind == DimKind::Parallel)
                    .collect();
                if !open.is_empty() {
                    let d = self.rng.pick(&open);
                    body.push(Expr::Iota(d), Ty::I64);
                }
            }
            3 => {
                let set: Vec<u32> = (0..slots.len() as u32).filter(|s| slots[*s as usize]).collect();
                if !set.is_empty() {
                    let slot = self.rng.pick(&set);
                    body.push(Expr::Slot(slot), self.kernel.slots[slot as usize]);
                }
            }
            4..=6 => self.load(body, is_loop),
            7 => {
                let to = self.rng.pick(&[Ty::F32, Ty::F64, Ty::I32, Ty::I64, Ty::Bool]);
                let v = V(self.rng.below(body.exprs.len().max(1) as u64) as u32);
                if !body.exprs.is_empty() {
                    body.push(Expr::Cast(v), to);
                }
            }
            8 => {
                let dtype = self.rng.pick(&[DType::F16, DType::BF16, DType::I8, DType::U8, DType::I16]);
                let ty = Ty::of(dtype).unwrap();
                if let Some(v) = self.pick(body, ty) {
                    body.push(Expr::Round(dtype, v), ty);
                }
            }
            _ => {
                let op = self.rng.pick(&self.ops.clone());
                let ty = self.rng.pick(&[Ty::F32, Ty::F32, Ty::F64, Ty::I32, Ty::I64, Ty::Bool]);
                let mut args: Vec<V> = (0..op.arity()).filter_map(|_| self.pick(body, ty)).collect();
                if op == ScalarOp::Select && args.len() == 3 {
                    match self.pick(body, Ty::Bool) {
                        Some(condition) => args[0] = condition,
                        None => return,
                    }
                }
                let types: Vec<Ty> = args.iter().map(|v| body.types[v.0 as usize]).collect();
                if let Ok(result) = oxy_loops::result_type(op, &types) {
                    body.push(Expr::Op(op, args), result);
                }
            }
        }
    }

    fn body(&mut self, is_loop: bool, slots: &mut [bool]) -> Body {
        let mut body = Body::default();
        self.load(&mut body, is_loop);
        for _ in 0..4 + self.rng.below(20) {
            self.expr(&mut body, is_loop, slots);
        }
        body
    }

    /// The reduction operators that give the same bits in any order.
    fn reduce_op(&mut self, ty: Ty) -> ReduceOp {
        match ty {
            Ty::Bool => self.rng.pick(&[ReduceOp::Any, ReduceOp::All]),
            t if t.is_float() => self.rng.pick(&[ReduceOp::Max, ReduceOp::Min]),
            _ => self.rng.pick(&[ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min]),
        }
    }

    fn generate(mut self) -> (Kernel, Vec<Vec<u8>>) {
        let index_param = self.param(DType::I64, false);
        self.index_params.push(index_param);
        let has_reduce = self.kernel.dims.iter().any(|d| d.kind == DimKind::Reduce);
        let phases = if has_reduce { 1 + self.rng.below(4) } else { 1 };
        self.kernel.slots = (0..3).map(|_| self.rng.pick(&[Ty::F32, Ty::F64, Ty::I32, Ty::I64, Ty::Bool])).collect();
        let mut slots = vec![false; 3];
        for p in 0..phases {
            let is_loop = has_reduce && self.rng.below(3) != 0;
            let mut body = self.body(is_loop, &mut slots);
            for slot in 0..3u32 {
                let ty = self.kernel.slots[slot as usize];
                let Some(value) = self.pick(&body, ty) else {
                    continue;
                };
                if self.rng.below(2) == 0 {
                    continue;
                }
                if is_loop {
                    let op = self.reduce_op(ty);
                    // A signed zero's sign depends on the order; keep it out of results.
                    let value = if ty.is_float() {
                        let zero = body.push(Expr::Float(0), ty);
                        body.push(Expr::Op(ScalarOp::Add, vec![value, zero]), ty)
                    } else {
                        value
                    };
                    body.reductions.push(Reduction { op, value, slot });
                } else {
                    body.sets.push((slot, value));
                }
                slots[slot as usize] = true;
            }
            if body.exprs.is_empty() {
                body.push(Expr::Int(3), Ty::I32);
            }
            for _ in 0..1 + self.rng.below(2) {
                let value = V(self.rng.below(body.exprs.len() as u64) as u32);
                let index = self.store_index(is_loop);
                let dtype = self.rng.pick(DTYPES);
                let param = self.param(dtype, true);
                self.need(param, &index, 0);
                body.stores.push(Store { param, index, value });
            }
            let is_last = p + 1 == phases;
            self.kernel.phases.push(if is_loop { Phase::Loop(body) } else { Phase::Point(body) });
            // What the loops left in the slots is observed at the end.
            if is_last && slots.iter().any(|s| *s) {
                let mut body = Body::default();
                for slot in (0..3u32).filter(|s| slots[*s as usize]) {
                    let ty = self.kernel.slots[slot as usize];
                    let value = body.push(Expr::Slot(slot), ty);
                    let dtype = DTYPES.iter().copied().find(|d| Ty::of(*d) == Some(ty)).unwrap();
                    let index = self.store_index(false);
                    let param = self.param(dtype, true);
                    self.need(param, &index, 0);
                    body.stores.push(Store { param, index, value });
                }
                self.kernel.phases.push(Phase::Point(body));
            }
        }
        let mut buffers = Vec::new();
        for (i, param) in self.kernel.params.iter().enumerate() {
            let len = self.lens[i] as usize;
            let mut bytes = random_buffer(&mut self.rng, param.dtype, len);
            if self.index_params.contains(&(i as u32)) {
                bytes = (0..len).flat_map(|_| (self.rng.below(8) as i64).to_le_bytes()).collect();
            }
            buffers.push(bytes);
        }
        (self.kernel, buffers)
    }
}

fn run(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (kernel, buffers) = Generator::new(seed).generate();
        oxy_loops::verify(&kernel).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        assert_eq!(oxy_loops::parse(&kernel.to_string()).unwrap(), kernel);
        let aliases: Vec<usize> = (0..kernel.params.len()).collect();
        let code = Code::new(&kernel);
        let range = kernel.range();
        check_aliased(&kernel, &code, &buffers, &aliases, &[(0, range)]);
        let mut rng = Rng(seed + 1);
        let cut = rng.below(range as u64 + 1) as i64;
        check_aliased(&kernel, &code, &buffers, &aliases, &[(cut, range), (0, cut)]);
    }
}

fn count() -> u64 {
    std::env::var("OXY_TEST_RANDOM").map_or(150, |n| n.parse().unwrap())
}

#[test]
fn random_kernels_equal_the_interpreter() {
    run(0..count());
}
