//! From points to a kernel: phases, bodies, slots, stores.
//!
//! Level k is what can be computed after k nested reductions. For each level there is a `Point` phase (values of a
//! parallel point, kept in slots for the loops) and a `Loop` phase (reductions of level k, and stores of elements).
//! A value that was stored in an earlier phase is read back instead of being computed again. Softmax's exponentials
//! are kept that way in the memory of the result until the last phase overwrites them.

use crate::{
    LowerError,
    affine::{Affine, Idx, address},
    points::{Place, PointId, Points},
};
use oxy_graph::ValueId;
use oxy_loops::{Body, Dim, Expr, Index, Kernel, Param, Phase, Reduction, ScalarOp, Split, Store, Ty, V};
use oxy_ops::{Exprs, Kind};
use rustc_hash::{FxHashMap, FxHashSet};

/// A point to be stored, as which element (a constant's point has no index of its own), and where.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    pub point: PointId,
    pub idx: Idx,
    pub place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PhaseId {
    level: u32,
    is_loop: bool,
}

struct Emitter<'a> {
    exprs: &'a Exprs,
    points: &'a Points,
    params: Vec<Param>,
    values: Vec<ValueId>,
    slots: Vec<Ty>,
    slot_of: FxHashMap<PointId, u32>,
    /// Points stored in phases that are finished.
    stored: FxHashMap<PointId, Place>,
}

/// Emits a kernel that stores `stores`; also gives the value of each parameter. Dimensions are in no particular order
/// yet and nothing is collapsed (`oxy_loops::schedule` does that).
pub fn emit(
    exprs: &Exprs,
    points: &Points,
    stores: &[StoreRequest],
    name: String,
) -> Result<(Kernel, Vec<ValueId>), LowerError> {
    let has_reduce = points.has_reduce();
    let mut emitter = Emitter {
        exprs,
        points,
        params: Vec::new(),
        values: Vec::new(),
        slots: Vec::new(),
        slot_of: FxHashMap::default(),
        stored: FxHashMap::default(),
    };
    let reduces: Vec<PointId> = (0..points.points.len() as u32)
        .map(PointId)
        .filter(|p| points.get(*p).load.is_none() && matches!(exprs.get(points.get(*p).t).kind, Kind::Reduce { .. }))
        .collect();
    for p in &reduces {
        emitter.new_slot(*p);
    }
    let rows = if has_reduce { emitter.row_slots(stores) } else { Vec::new() };
    let phase_of =
        |s: &StoreRequest| PhaseId { level: points.get(s.point).level, is_loop: points.is_full_index(&s.idx) };
    let last = points.points.iter().map(|p| p.level).max().unwrap_or(0);
    let scratch = scratch(exprs, points, stores, &reduces);
    let mut phases = Vec::new();
    for level in 0..=last {
        for is_loop in [false, true] {
            let phase = PhaseId { level, is_loop };
            let mut writer =
                BodyWriter { emitter: &mut emitter, phase, body: Body::default(), memo: FxHashMap::default() };
            if is_loop {
                for p in &reduces {
                    let point = points.get(*p);
                    if point.level == level + 1 {
                        writer.reduction(*p)?;
                    }
                }
            } else {
                for p in rows.iter().filter(|p| points.get(**p).level == level) {
                    writer.set(*p)?;
                }
            }
            let early = scratch.iter().filter(|s| phase_of(s) == phase);
            let here: Vec<&StoreRequest> = stores.iter().filter(|s| phase_of(s) == phase).chain(early).collect();
            for store in &here {
                writer.store(store)?;
            }
            let body = writer.body;
            if !(body.stores.is_empty() && body.reductions.is_empty() && body.sets.is_empty()) {
                phases.push(if is_loop { Phase::Loop(body) } else { Phase::Point(body) });
            }
            for store in here {
                if !exprs.is_const(points.get(store.point).t) {
                    emitter.stored.insert(store.point, store.place.clone());
                }
            }
        }
    }
    let dims = points.extents.iter().zip(&points.kinds).map(|(e, k)| Dim { extent: *e, kind: *k }).collect();
    let kernel = Kernel {
        name,
        params: emitter.params,
        dims,
        vector_dim: None,
        phases,
        slots: emitter.slots,
        split: Split::Outer,
    };
    Ok((kernel, emitter.values))
}

/// Costly elements that a reduction and a later store both need, kept in the store's memory in between: it must hold
/// their type exactly, at the same index.
fn scratch(exprs: &Exprs, points: &Points, stores: &[StoreRequest], reduces: &[PointId]) -> Vec<StoreRequest> {
    let is_costly = |p: PointId| {
        matches!(
            exprs.get(points.get(p).t).kind,
            Kind::Op(ScalarOp::Exp | ScalarOp::Pow | ScalarOp::Tanh | ScalarOp::Erf | ScalarOp::Log, _)
        )
    };
    let mut scratch = Vec::new();
    for store in stores {
        let stored = points.get(store.point);
        let candidates = reduces.iter().flat_map(|r| points.get(*r).operands.iter().copied());
        let candidate = candidates.filter(|p| is_costly(*p)).find(|p| {
            let point = points.get(*p);
            point.idx == store.idx
                && point.level < stored.level
                && exprs.storage_dtype(point.t) == store.place.dtype
                && uses(points, store.point, *p)
        });
        // Only the last phase may use the element again: other stores may need it later than this one.
        if let Some(point) = candidate
            && stores.iter().all(|s| points.get(s.point).level <= stored.level)
        {
            let idx = points.get(point).idx.clone();
            scratch.push(StoreRequest { point, idx, place: store.place.clone() });
            break;
        }
    }
    scratch
}

/// Whether computing `p` involves `operand`.
fn uses(points: &Points, p: PointId, operand: PointId) -> bool {
    let mut seen = FxHashSet::default();
    let mut stack = vec![p];
    while let Some(p) = stack.pop() {
        if p == operand {
            return true;
        }
        // Operands have smaller numbers.
        if p > operand && seen.insert(p) {
            stack.extend(&points.get(p).operands);
        }
    }
    false
}

impl Emitter<'_> {
    fn new_slot(&mut self, p: PointId) -> u32 {
        let slot = self.slots.len() as u32;
        self.slots.push(self.exprs.ty(self.points.get(p).t));
        self.slot_of.insert(p, slot);
        slot
    }

    /// Gives slots to the values of parallel points that loops read and that depend on reductions.
    fn row_slots(&mut self, stores: &[StoreRequest]) -> Vec<PointId> {
        let mut rows = Vec::new();
        for i in 0..self.points.points.len() as u32 {
            if !self.points.is_full(PointId(i)) {
                continue;
            }
            for operand in self.points.get(PointId(i)).operands.clone() {
                self.row_slot(operand, &mut rows);
            }
        }
        // A row value stored at full indices.
        for store in stores.iter().filter(|s| self.points.is_full_index(&s.idx)) {
            self.row_slot(store.point, &mut rows);
        }
        rows
    }

    fn row_slot(&mut self, p: PointId, rows: &mut Vec<PointId>) {
        let point = self.points.get(p);
        if point.level >= 1 && !self.points.is_full(p) && !self.slot_of.contains_key(&p) {
            rows.push(p);
            self.new_slot(p);
        }
    }

    fn param(&mut self, place: &Place, written: bool) -> u32 {
        let found = self.values.iter().position(|v| *v == place.value);
        let i = found.unwrap_or_else(|| {
            self.values.push(place.value);
            self.params.push(Param { dtype: place.dtype, written: false });
            self.values.len() - 1
        });
        self.params[i].written |= written;
        i as u32
    }

    fn index(&self, at: &Affine) -> Index {
        let mut index = Index { base: at.base, strides: Default::default(), indirect: Vec::new() };
        index.strides.resize(self.points.extents.len(), 0);
        for (axis, stride) in &at.terms {
            index.strides[*axis as usize] = *stride;
        }
        index
    }
}

struct BodyWriter<'a, 'b> {
    emitter: &'a mut Emitter<'b>,
    phase: PhaseId,
    body: Body,
    memo: FxHashMap<PointId, V>,
}

impl BodyWriter<'_, '_> {
    fn reduction(&mut self, p: PointId) -> Result<(), LowerError> {
        let point = self.emitter.points.get(p);
        let (&[of], Kind::Reduce { op, .. }) = (point.operands.as_slice(), &self.emitter.exprs.get(point.t).kind)
        else {
            return Err(LowerError::Internal("a reduction without operand".to_owned()));
        };
        let value = self.value(of)?;
        let slot = self.slot(p)?;
        self.body.reductions.push(Reduction { op: *op, value, slot });
        Ok(())
    }

    fn set(&mut self, p: PointId) -> Result<(), LowerError> {
        let value = self.compute(p)?;
        let slot = self.slot(p)?;
        self.body.sets.push((slot, value));
        Ok(())
    }

    fn store(&mut self, store: &StoreRequest) -> Result<(), LowerError> {
        let value = self.value(store.point)?;
        let param = self.emitter.param(&store.place, true);
        let index = self.emitter.index(&address(&store.idx, &store.place.strides, store.place.offset));
        self.body.stores.push(Store { param, index, value });
        Ok(())
    }

    fn slot(&self, p: PointId) -> Result<u32, LowerError> {
        let slot = self.emitter.slot_of.get(&p).copied();
        slot.ok_or_else(|| LowerError::Internal("a value without slot".to_owned()))
    }

    fn value(&mut self, p: PointId) -> Result<V, LowerError> {
        if let Some(v) = self.memo.get(&p) {
            return Ok(*v);
        }
        let (points, exprs) = (self.emitter.points, self.emitter.exprs);
        let point = points.get(p);
        let is_reduce = point.load.is_none() && matches!(exprs.get(point.t).kind, Kind::Reduce { .. });
        // A slot set in an earlier phase, or by the reduction.
        let in_slot = self.emitter.slot_of.contains_key(&p)
            && (is_reduce || self.phase > PhaseId { level: point.level, is_loop: false });
        let v = if in_slot {
            let slot = self.slot(p)?;
            self.body.push(Expr::Slot(slot), exprs.ty(point.t))
        } else if let Some(place) = self.emitter.stored.get(&p).cloned() {
            self.load(p, &place)
        } else {
            self.compute(p)?
        };
        self.memo.insert(p, v);
        Ok(v)
    }

    fn load(&mut self, p: PointId, place: &Place) -> V {
        let point = self.emitter.points.get(p);
        let ty = self.emitter.exprs.ty(point.t);
        let index = self.emitter.index(&address(&point.idx, &place.strides, place.offset));
        let param = self.emitter.param(place, false);
        self.body.push(Expr::Load { param, index, mask: None }, ty)
    }

    /// Computes a point, whatever slot or memory it may have.
    fn compute(&mut self, p: PointId) -> Result<V, LowerError> {
        let (points, exprs) = (self.emitter.points, self.emitter.exprs);
        let point = points.get(p);
        if let Some(place) = &point.load {
            return Ok(self.load(p, place));
        }
        let expr = exprs.get(point.t);
        let mut args = Vec::with_capacity(point.operands.len());
        for operand in &point.operands {
            args.push(self.value(*operand)?);
        }
        let first = args.first().copied();
        let missing = || LowerError::Internal("an expression without operand".to_owned());
        Ok(match &expr.kind {
            Kind::Float(bits) => self.body.push(Expr::Float(*bits), expr.ty),
            Kind::Int(x) => self.body.push(Expr::Int(*x), expr.ty),
            Kind::Iota(dim) => {
                let at = point.idx.get(*dim as usize).ok_or_else(missing)?;
                self.affine(&at.clone())
            }
            Kind::Op(op, _) => self.body.push(Expr::Op(*op, args), expr.ty),
            Kind::Cast(_) => self.body.push(Expr::Cast(first.ok_or_else(missing)?), expr.ty),
            Kind::Round(dtype, _) => self.body.push(Expr::Round(*dtype, first.ok_or_else(missing)?), expr.ty),
            Kind::View { .. } => first.ok_or_else(missing)?,
            Kind::Buffer { .. } | Kind::Reduce { .. } | Kind::Concat { .. } => {
                return Err(LowerError::Internal("an expression that can't be computed in place".to_owned()));
            }
        })
    }

    fn affine(&mut self, at: &Affine) -> V {
        let mut sum = None;
        for (axis, coefficient) in &at.terms {
            let mut v = self.body.push(Expr::Iota(*axis), Ty::I64);
            if *coefficient != 1 {
                let c = self.body.push(Expr::Int(*coefficient), Ty::I64);
                v = self.body.push(Expr::Op(ScalarOp::Mul, vec![v, c]), Ty::I64);
            }
            sum = Some(match sum {
                None => v,
                Some(s) => self.body.push(Expr::Op(ScalarOp::Add, vec![s, v]), Ty::I64),
            });
        }
        match (sum, at.base) {
            (None, base) => self.body.push(Expr::Int(base), Ty::I64),
            (Some(s), 0) => s,
            (Some(s), base) => {
                let c = self.body.push(Expr::Int(base), Ty::I64);
                self.body.push(Expr::Op(ScalarOp::Add, vec![s, c]), Ty::I64)
            }
        }
    }
}
