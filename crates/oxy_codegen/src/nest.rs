//! Loop nests: from a kernel to control flow.
//!
//! The vector dimension is visited in up to three ways: full steps of `copies × lanes` points, then single
//! vectors, and an incomplete last vector under a mask; where masks have no hardware (8 and 16 bit stores before
//! AVX-512) or stores are scattered, the rest is scalar code. Which of them exist is decided here from the extent.
//!
//! Reductions along the vector dimension keep `copies × lanes` accumulators and fold them as a balanced tree at
//! the end of the phase. Float sums and products cascade: every `BLOCK` iterations start from the identity and
//! join the outer accumulator, so error grows with the logarithm of the length, as in torch's cascade sum.

use crate::{
    emit::{Emit, Kind, MAX_COPIES, Val},
    llvm::{IntPredicate, Value},
    memory::{self, Buffer, Cursor},
    shape::Shape,
    spell,
};
use oxy_loops::{Body, DimKind, Expr, Kernel, Phase, ReduceOp, Split};

/// Iterations that one accumulator takes before it is folded outwards.
const BLOCK: i64 = 64;

/// Emits the body of the kernel's entry function, whose parameters are (buffers, lo, hi).
pub fn emit<'c>(e: &Emit<'c>, kernel: &Kernel, buffers: Vec<Buffer<'c>>) {
    let nest = Nest { e, kernel, buffers };
    let (lo, hi) = (e.param(1), e.param(2));
    let vector = nest.parallel_vector();
    let is_parallel = |d: &usize| kernel.dims[*d].kind == DimKind::Parallel && Some(*d) != vector;
    let outer: Vec<usize> = (0..kernel.dims.len()).filter(is_parallel).collect();
    if kernel.dims.iter().any(|dim| dim.kind == DimKind::Parallel && dim.extent == 0) {
        return;
    }
    let cursor = Cursor::new(kernel.dims.len());
    match vector {
        Some(dim) if kernel.split == Split::Vector => {
            let shape = Shape::of_kernel(kernel, e.target, None);
            nest.vector_range(&shape, dim, (lo, hi), None, &cursor, Vec::new(), None, &mut |cursor, _| {
                nest.nested(&outer, cursor);
                Vec::new()
            });
        }
        _ => nest.odometer(&outer, lo, hi, &cursor),
    }
}

struct Nest<'n, 'c> {
    e: &'n Emit<'c>,
    kernel: &'n Kernel,
    buffers: Vec<Buffer<'c>>,
}

/// How the partial accumulators of one block of iterations join the running ones.
struct Cascade<'n, 'c> {
    identity: Vec<Value<'c>>,
    join: &'n Join<'n, 'c>,
    /// Steps that one accumulator takes within one iteration: those of the inner loops.
    inner_steps: i64,
}

type Join<'n, 'c> = dyn Fn(&[Value<'c>], &[Value<'c>]) -> Vec<Value<'c>> + 'n;
type LoopBody<'n, 'c> = &'n mut dyn FnMut(&Cursor<'c>, &[Value<'c>]) -> Vec<Value<'c>>;

impl<'c> Nest<'_, 'c> {
    fn parallel_vector(&self) -> Option<usize> {
        let dim = self.kernel.vector_dim? as usize;
        (self.kernel.dims[dim].kind == DimKind::Parallel).then_some(dim)
    }

    fn reduce_vector(&self) -> Option<usize> {
        let dim = self.kernel.vector_dim? as usize;
        (self.kernel.dims[dim].kind == DimKind::Reduce).then_some(dim)
    }

    /// lo..hi as a linear index over `dims`: digits are split off once, then counted up.
    fn odometer(&self, dims: &[usize], lo: Value<'c>, hi: Value<'c>, cursor: &Cursor<'c>) {
        let (e, b) = (self.e, &self.e.builder);
        let extents: Vec<i64> = dims.iter().map(|d| self.kernel.dims[*d].extent).collect();
        let mut digits = vec![lo; dims.len()];
        let mut rest = lo;
        for k in (1..dims.len()).rev() {
            let extent = e.index(extents[k]);
            digits[k] = b.urem(rest, extent);
            rest = b.udiv(rest, extent);
        }
        if let Some(first) = digits.first_mut() {
            *first = rest;
        }
        e.counted(lo, hi, 1, &digits, &mut |_, digits| {
            let mut inner = cursor.clone();
            for (dim, digit) in dims.iter().zip(digits) {
                inner = inner.at(*dim, *digit);
            }
            self.row(&inner);
            let mut next = digits.to_vec();
            let mut carry = e.index(1);
            for k in (0..dims.len()).rev() {
                let sum = b.add(digits[k], carry);
                let wraps = b.icmp(IntPredicate::LLVMIntEQ, sum, e.index(extents[k]));
                let keep = k == 0;
                next[k] = if keep { sum } else { b.select(wraps, e.index(0), sum) };
                carry = b.zext(wraps, e.context.int(64));
            }
            next
        });
    }

    /// All points with the outer parallel dimensions fixed.
    fn row(&self, cursor: &Cursor<'c>) {
        let Some(dim) = self.parallel_vector() else {
            return self.point(cursor);
        };
        let extent = self.kernel.dims[dim].extent;
        let shape = Shape::of_kernel(self.kernel, self.e.target, Some(extent));
        let range = (self.e.index(0), self.e.index(extent));
        self.vector_range(&shape, dim, range, Some(extent), cursor, Vec::new(), None, &mut |cursor, _| {
            self.point(cursor);
            Vec::new()
        });
    }

    /// All points of these parallel dimensions, inside a vector step.
    fn nested(&self, dims: &[usize], cursor: &Cursor<'c>) {
        let Some((dim, rest)) = dims.split_first() else {
            return self.point(cursor);
        };
        let extent = self.e.index(self.kernel.dims[*dim].extent);
        self.e.counted(self.e.index(0), extent, 1, &[], &mut |i, _| {
            self.nested(rest, &cursor.at(*dim, i));
            Vec::new()
        });
    }

    /// The range of the vector dimension in full steps, single vectors and a rest. `extent` is hi - lo if known.
    #[expect(clippy::too_many_arguments, reason = "one call site per kind of loop; a struct would only rename them")]
    fn vector_range(
        &self,
        shape: &Shape,
        dim: usize,
        (lo, hi): (Value<'c>, Value<'c>),
        extent: Option<i64>,
        cursor: &Cursor<'c>,
        mut carried: Vec<Value<'c>>,
        cascade: Option<&Cascade<'_, 'c>>,
        body: LoopBody<'_, 'c>,
    ) -> Vec<Value<'c>> {
        let (e, lanes, copies) = (self.e, shape.lanes, shape.copies);
        let place = |index, copies, lanes, mask| {
            let mut inner = cursor.at(dim, index);
            (inner.vector, inner.lanes, inner.copies, inner.mask) = (Some(dim), lanes, copies, mask);
            inner
        };
        let (step, vector) = (i64::from(lanes * copies), i64::from(lanes));
        let mut at = lo;
        // Full steps.
        if extent.is_none_or(|n| n >= step) {
            let trips = extent.map_or(0, |n| n / step);
            (at, carried) = self.blocks((lo, hi), trips, step, carried, cascade, &mut |i, carried| {
                body(&place(i, copies, lanes, None), carried)
            });
        }
        let rest = extent.map(|n| n % step);
        if rest == Some(0) || step == 1 {
            return carried;
        }
        let is_partial = rest.is_none_or(|n| n % vector != 0);
        // Single vectors; the masked loop below also does the complete ones.
        if copies > 1 && rest.is_none_or(|n| n >= vector) && !(is_partial && shape.masked_tail) {
            (at, carried) =
                e.counted(at, hi, vector, &carried, &mut |i, carried| body(&place(i, 1, lanes, None), carried));
        }
        if !is_partial || lanes == 1 {
            return carried;
        }
        if !shape.masked_tail {
            let (_, carried) = e.counted(at, hi, 1, &carried, &mut |i, carried| body(&place(i, 1, 1, None), carried));
            return carried;
        }
        // i + lanes <= hi + lanes - 1 holds for every vector with at least one point.
        let end = e.builder.add(hi, e.index(vector - 1));
        let (_, carried) = e.counted(at, end, vector, &carried, &mut |i, carried| {
            let mask = self.tail_mask(e.builder.sub(hi, i), lanes);
            body(&place(i, 1, lanes, Some(mask)), carried)
        });
        carried
    }

    /// Lane number < count, for a count of at least 1.
    fn tail_mask(&self, count: Value<'c>, lanes: u32) -> Val<'c> {
        let (e, b) = (self.e, &self.e.builder);
        let all = e.index(lanes.into());
        let count = b.select(b.icmp(IntPredicate::LLVMIntSLT, count, all), count, all);
        let int = e.context.int(32);
        let count = e.splat_value(b.trunc(count, int), lanes);
        let numbers: Vec<Value> = (0..lanes).map(|l| int.int_const(l.into())).collect();
        Val::bundle(Kind::I1, lanes, &[b.icmp(IntPredicate::LLVMIntSLT, Value::const_vector(&numbers), count)])
    }

    /// A counted loop of `trips` iterations (0: unknown), in blocks if it cascades.
    fn blocks(
        &self,
        (lo, hi): (Value<'c>, Value<'c>),
        trips: i64,
        step: i64,
        carried: Vec<Value<'c>>,
        cascade: Option<&Cascade<'_, 'c>>,
        body: &mut dyn FnMut(Value<'c>, &[Value<'c>]) -> Vec<Value<'c>>,
    ) -> (Value<'c>, Vec<Value<'c>>) {
        let (e, b) = (self.e, &self.e.builder);
        let base = cascade.map_or(i64::MAX, |cascade| (BLOCK / cascade.inner_steps.max(1)).max(1));
        let cascade = match cascade {
            Some(cascade) if trips > base => cascade,
            _ => return e.counted(lo, hi, step, &carried, body),
        };
        let mut block = base;
        while block * BLOCK < trips {
            block *= BLOCK;
        }
        let size = e.index(block * step);
        let count = e.index((trips + block - 1) / block);
        let (_, carried) = e.counted(e.index(0), count, 1, &carried, &mut |k, carried| {
            let start = b.add(lo, b.mul(k, size));
            let end = b.add(start, size);
            let end = b.select(b.icmp(IntPredicate::LLVMIntSLT, end, hi), end, hi);
            let first = cascade.identity.clone();
            let (_, partial) = self.blocks((start, end), block, step, first, Some(cascade), body);
            (cascade.join)(carried, &partial)
        });
        (b.add(lo, e.index(trips * step)), carried)
    }

    /// All phases at one parallel point (or one vector step of them).
    fn point(&self, cursor: &Cursor<'c>) {
        let mut slots: Vec<Option<Val>> = vec![None; self.kernel.slots.len()];
        for phase in &self.kernel.phases {
            match phase {
                Phase::Point(body) => {
                    let values = self.body(cursor, body, &slots);
                    for (slot, value) in &body.sets {
                        slots[*slot as usize] = Some(values[value.0 as usize]);
                    }
                }
                Phase::Loop(body) => self.loop_phase(cursor, body, &mut slots),
            }
        }
    }

    fn loop_phase(&self, cursor: &Cursor<'c>, body: &Body, slots: &mut [Option<Val<'c>>]) {
        let e = self.e;
        let dims: Vec<usize> =
            (0..self.kernel.dims.len()).filter(|d| self.kernel.dims[*d].kind == DimKind::Reduce).collect();
        let shape = match self.reduce_vector() {
            Some(dim) => Shape::of_body(self.kernel, body, e.target, self.kernel.dims[dim].extent),
            None => Shape { lanes: cursor.lanes, copies: cursor.copies, masked_tail: false },
        };
        let accs = Accumulators::new(e, body, &shape, self.reduce_vector().is_some());
        let first = accs.flatten(&accs.first);
        let join = |a: &[Value<'c>], b: &[Value<'c>]| accs.join(e, body, a, b);
        let is_float_fold = |op: ReduceOp| matches!(op, ReduceOp::Sum | ReduceOp::Prod);
        let cascades = body.reductions.iter().any(|r| is_float_fold(r.op) && body.types[r.value.0 as usize].is_float());
        let join: Option<&Join<'_, 'c>> = if cascades { Some(&join) } else { None };
        let context = LoopPhase { body, slots, shape: &shape, accs: &accs, join };
        let folded = self.reduce(&context, &dims, cursor, first);
        let results = accs.results(e, body, &folded);
        for (reduction, value) in body.reductions.iter().zip(results) {
            slots[reduction.slot as usize] = Some(value);
        }
    }

    /// The reduce dimensions `dims`, outermost first, then the body.
    fn reduce(
        &self,
        phase: &LoopPhase<'_, 'c>,
        dims: &[usize],
        cursor: &Cursor<'c>,
        carried: Vec<Value<'c>>,
    ) -> Vec<Value<'c>> {
        let Some((&dim, rest)) = dims.split_first() else {
            let values = self.body(cursor, phase.body, phase.slots);
            return phase.accs.accumulate(self.e, phase.body, cursor, &values, &carried);
        };
        let extent = self.kernel.dims[dim].extent;
        let range = (self.e.index(0), self.e.index(extent));
        let inner_steps = rest.iter().map(|d| self.steps(phase.shape, *d)).product();
        let cascade =
            phase.join.map(|join| Cascade { identity: phase.accs.flatten(&phase.accs.first), join, inner_steps });
        let cascade = cascade.as_ref();
        if self.reduce_vector() == Some(dim) {
            return self.vector_range(
                phase.shape,
                dim,
                range,
                Some(extent),
                cursor,
                carried,
                cascade,
                &mut |cursor, carried| self.reduce(phase, rest, cursor, carried.to_vec()),
            );
        }
        let mut body =
            |i: Value<'c>, carried: &[Value<'c>]| self.reduce(phase, rest, &cursor.at(dim, i), carried.to_vec());
        self.blocks(range, extent, 1, carried, cascade, &mut body).1
    }

    /// Iterations of a reduce dimension's loop.
    fn steps(&self, shape: &Shape, dim: usize) -> i64 {
        let extent = self.kernel.dims[dim].extent;
        if self.reduce_vector() == Some(dim) { extent / i64::from(shape.lanes * shape.copies) + 1 } else { extent }
    }

    /// Emits a body's expressions and stores; returns the expressions' values.
    fn body(&self, cursor: &Cursor<'c>, body: &Body, slots: &[Option<Val<'c>>]) -> Vec<Val<'c>> {
        let e = self.e;
        let mut values: Vec<Val> = Vec::with_capacity(body.exprs.len());
        for (expr, ty) in body.exprs.iter().zip(&body.types) {
            let kind = spell::kind_of(*ty);
            let of = |v: &oxy_loops::V| values[v.0 as usize];
            let value = match expr {
                Expr::Float(bits) => e.float(kind, f64::from_bits(*bits)),
                // Bool constants are 0 or anything else.
                Expr::Int(value) if *ty == oxy_loops::Ty::Bool => e.int(kind, -i64::from(*value != 0)),
                Expr::Int(value) => e.int(kind, *value),
                Expr::Iota(dim) => memory::iota(e, cursor, *dim as usize),
                // The verifier has checked that the slot is set.
                Expr::Slot(slot) => slots[*slot as usize].unwrap_or_else(|| Val::scalar(kind, e.ty(kind).null())),
                Expr::Load { param, index, mask } => {
                    let buffer = &self.buffers[*param as usize];
                    memory::load(e, cursor, buffer, index, mask.as_ref().map(of), &values)
                }
                Expr::Op(op, args) => {
                    let args: Vec<Val> = args.iter().map(of).collect();
                    spell::op(e, *op, &args)
                }
                Expr::Cast(v) => spell::cast(e, of(v), *ty),
                Expr::Round(dtype, v) => spell::round(e, *dtype, of(v)),
            };
            values.push(value);
        }
        for store in &body.stores {
            let buffer = &self.buffers[store.param as usize];
            let mut value = values[store.value.0 as usize];
            if let Some(ty) = oxy_loops::Ty::of(buffer.dtype) {
                value = spell::cast(e, value, ty);
            }
            memory::store(e, cursor, buffer, &store.index, value, &values);
        }
        values
    }
}

/// What a `Loop` phase needs at every level of its nest.
struct LoopPhase<'n, 'c> {
    body: &'n Body,
    slots: &'n [Option<Val<'c>>],
    shape: &'n Shape,
    accs: &'n Accumulators<'c>,
    /// Set if float sums or products are to cascade.
    join: Option<&'n Join<'n, 'c>>,
}

/// The accumulators of a `Loop` phase. Along a reduced vector dimension with a scalar rest, each reduction has a
/// bundle and, after it, a scalar for the rest; otherwise one bundle.
struct Accumulators<'c> {
    first: Vec<Val<'c>>,
    /// Bundles per reduction: 1 or 2.
    parts: usize,
    /// The vector dimension is reduced: results fold to scalars.
    folds: bool,
}

impl<'c> Accumulators<'c> {
    fn new(e: &Emit<'c>, body: &Body, shape: &Shape, folds: bool) -> Accumulators<'c> {
        let parts = if folds && !shape.masked_tail && shape.lanes > 1 { 2 } else { 1 };
        let mut first = Vec::new();
        for r in &body.reductions {
            let kind = spell::kind_of(body.types[r.value.0 as usize]);
            let identity = spell::identity(e, r.op, kind);
            first.push(e.promote(identity, shape.lanes, shape.copies));
            if parts == 2 {
                first.push(identity);
            }
        }
        Accumulators { first, parts, folds }
    }

    fn flatten(&self, accs: &[Val<'c>]) -> Vec<Value<'c>> {
        accs.iter().flat_map(|acc| acc.values().to_vec()).collect()
    }

    fn unflatten(&self, mut values: &[Value<'c>]) -> Vec<Val<'c>> {
        let mut accs = Vec::new();
        for first in &self.first {
            let (mine, rest) = values.split_at(first.copies as usize);
            accs.push(Val::bundle(first.kind, first.lanes, mine));
            values = rest;
        }
        accs
    }

    fn join(&self, e: &Emit<'c>, body: &Body, a: &[Value<'c>], b: &[Value<'c>]) -> Vec<Value<'c>> {
        let (a, b) = (self.unflatten(a), self.unflatten(b));
        let joined: Vec<Val> =
            (0..a.len()).map(|i| spell::combine(e, body.reductions[i / self.parts].op, a[i], b[i])).collect();
        self.flatten(&joined)
    }

    /// Takes in the values of one step.
    fn accumulate(
        &self,
        e: &Emit<'c>,
        body: &Body,
        cursor: &Cursor<'c>,
        values: &[Val<'c>],
        carried: &[Value<'c>],
    ) -> Vec<Value<'c>> {
        let mut accs = self.unflatten(carried);
        for (k, r) in body.reductions.iter().enumerate() {
            let mut value = values[r.value.0 as usize];
            let is_rest = self.parts == 2 && cursor.lanes == 1 && cursor.vector.is_some();
            let acc = &mut accs[k * self.parts + usize::from(is_rest)];
            value = e.promote(value, acc.lanes, if is_rest { 1 } else { cursor.copies });
            if let (true, Some(mask)) = (self.folds, cursor.mask) {
                value = e.select(mask, value, spell::identity(e, r.op, value.kind));
            }
            if value.copies == acc.copies {
                *acc = spell::combine(e, r.op, *acc, value);
                continue;
            }
            // A single vector goes to the first copy.
            let head = Val::bundle(acc.kind, acc.lanes, &[acc.copy(0)]);
            let mut copies = acc.values().to_vec();
            copies[0] = spell::combine(e, r.op, head, value).copy(0);
            *acc = Val::bundle(acc.kind, acc.lanes, &copies);
        }
        self.flatten(&accs)
    }

    /// The value of each reduction.
    fn results(&self, e: &Emit<'c>, body: &Body, folded: &[Value<'c>]) -> Vec<Val<'c>> {
        let accs = self.unflatten(folded);
        let fold = |(k, r): (usize, &oxy_loops::Reduction)| {
            let acc = accs[k * self.parts];
            if !self.folds {
                return acc;
            }
            let mut copies: Vec<Val> = acc.values().iter().map(|v| Val::bundle(acc.kind, acc.lanes, &[*v])).collect();
            while copies.len() > 1 {
                copies = copies
                    .chunks(2)
                    .map(|pair| match pair {
                        [a, b] => spell::combine(e, r.op, *a, *b),
                        _ => pair[0],
                    })
                    .collect();
            }
            let mut total = copies[0];
            while total.lanes > 1 {
                let half = total.lanes / 2;
                let v = total.copy(0);
                let low: Vec<u32> = (0..half).collect();
                let high: Vec<u32> = (half..total.lanes).collect();
                let part = |lanes: &[u32]| {
                    let value = match lanes {
                        [lane] => e.builder.extract(v, e.context.int(32).int_const((*lane).into())),
                        _ => e.builder.shuffle(v, v.ty().poison(), lanes),
                    };
                    Val::bundle(acc.kind, half, &[value])
                };
                total = spell::combine(e, r.op, part(&low), part(&high));
            }
            if self.parts == 2 { spell::combine(e, r.op, total, accs[k * self.parts + 1]) } else { total }
        };
        debug_assert!(accs.iter().all(|a| a.copies as usize <= MAX_COPIES));
        body.reductions.iter().enumerate().map(fold).collect()
    }
}
