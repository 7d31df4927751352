//! Points: a tensor expression unfolded over the iteration space of one kernel.
//!
//! Starting from what the kernel stores, every needed element is a *point*: an expression at an index that is affine
//! in the kernel's dimensions. Views disappear into indices. Reductions take the kernel's reduce dimensions: those
//! dimensions of the stored value that the reduction's result doesn't depend on (softmax: the row it normalises), or
//! new ones. What doesn't fit must be in memory first; it is reported as a need, not approximated.

use crate::{
    affine::{Affine, Idx, Obstacle, address, delinearize},
    cost::Costs,
};
use oxy_graph::{DType, ValueId, meta::Dims};
use oxy_loops::DimKind;
use oxy_ops::{Exprs, Kind, T};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Where an expression's values are in memory: element i of the expression is at Σ strides·i of `value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub value: ValueId,
    pub dtype: DType,
    pub strides: Dims,
    pub offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointId(pub u32);

#[derive(Clone, Debug)]
pub struct Point {
    pub t: T,
    pub idx: Idx,
    pub operands: SmallVec<[PointId; 3]>,
    /// The number of reductions, one inside the other, that must be done before.
    pub level: u32,
    /// Read from memory.
    pub load: Option<Place>,
}

/// A kernel dimension: its extent and kind, and which factor of what it is.
#[derive(Clone, Copy, Debug)]
struct Axis {
    extent: i64,
    kind: DimKind,
    origin: Origin,
}

#[derive(Clone, Copy, Debug)]
enum Origin {
    /// Factor j of dimension d of the stored value.
    Root(usize, usize),
    /// Factor j of created reduce dimension d.
    Reduce(usize, usize),
}

/// The unfolded kernel.
#[derive(Debug, Default)]
pub struct Points {
    pub points: Vec<Point>,
    pub extents: Vec<i64>,
    pub kinds: Vec<DimKind>,
    /// The points of the roots, in order, and the index they are all at.
    pub roots: Vec<PointId>,
    pub root_idx: Idx,
}

/// What unfolding can end in besides success.
#[derive(Debug)]
pub enum Unfit {
    /// These expressions must be in memory first.
    Needs(Vec<T>),
    /// An invariant of ours doesn't hold.
    Bug(&'static str),
}

pub struct Unfolder<'a> {
    pub exprs: &'a Exprs,
    pub costs: &'a Costs,
    /// Expressions that are in memory.
    pub places: &'a FxHashMap<T, Place>,
}

/// More points than this in a kernel help nobody.
const MAX_POINTS: usize = 1500;

enum Stop {
    Split { axis: usize, inner: i64 },
    Bug(&'static str),
}

struct Walk<'a> {
    unfolder: &'a Unfolder<'a>,
    axes: Vec<Axis>,
    extents: Vec<i64>,
    reduce_factors: &'a [Vec<i64>],
    n_created: usize,
    has_reduce: bool,
    numbers: FxHashMap<(T, Idx), PointId>,
    first_idx: FxHashMap<T, PointId>,
    points: Vec<Point>,
    needs: Vec<T>,
}

impl Unfolder<'_> {
    /// Unfolds roots that share the sizes `sizes`.
    pub fn unfold(&self, roots: &[T], sizes: &[i64]) -> Result<Points, Unfit> {
        let mut root_factors: Vec<Vec<i64>> = sizes.iter().map(|s| vec![*s]).collect();
        let mut reduce_factors: Vec<Vec<i64>> = Vec::new();
        // Every round splits a dimension, so there are at most log2(numel) of them.
        for _ in 0..128 {
            let mut walk = Walk::new(self, &root_factors, &reduce_factors);
            let idx = walk.root_index(sizes.len());
            let mut result = Ok(());
            let mut points = Vec::new();
            for root in roots {
                match walk.visit(*root, idx.clone()) {
                    Ok(point) => points.push(point),
                    Err(stop) => {
                        result = Err(stop);
                        break;
                    }
                }
            }
            match result {
                Err(Stop::Bug(what)) => return Err(Unfit::Bug(what)),
                Err(Stop::Split { axis, inner }) => {
                    let (factors, j) = match walk.axes[axis].origin {
                        Origin::Root(d, j) => (&mut root_factors[d], j),
                        Origin::Reduce(d, j) => {
                            let extent = walk.axes[axis].extent;
                            while reduce_factors.len() <= d {
                                reduce_factors.push(Vec::new());
                            }
                            if reduce_factors[d].is_empty() {
                                reduce_factors[d].push(extent);
                            }
                            (&mut reduce_factors[d], j)
                        }
                    };
                    factors[j] /= inner;
                    factors.insert(j + 1, inner);
                }
                Ok(()) if !walk.needs.is_empty() => return Err(Unfit::Needs(walk.needs)),
                Ok(()) => {
                    return Ok(Points {
                        points: walk.points,
                        extents: walk.extents,
                        kinds: walk.axes.iter().map(|a| a.kind).collect(),
                        roots: points,
                        root_idx: idx,
                    });
                }
            }
        }
        Err(Unfit::Bug("splitting dimensions doesn't end"))
    }
}

impl<'a> Walk<'a> {
    fn new(unfolder: &'a Unfolder<'a>, root_factors: &[Vec<i64>], reduce_factors: &'a [Vec<i64>]) -> Walk<'a> {
        let mut axes = Vec::new();
        for (d, factors) in root_factors.iter().enumerate() {
            for (j, extent) in factors.iter().enumerate() {
                axes.push(Axis { extent: *extent, kind: DimKind::Parallel, origin: Origin::Root(d, j) });
            }
        }
        Walk {
            unfolder,
            extents: axes.iter().map(|a| a.extent).collect(),
            axes,
            reduce_factors,
            n_created: 0,
            has_reduce: false,
            numbers: FxHashMap::default(),
            first_idx: FxHashMap::default(),
            points: Vec::new(),
            needs: Vec::new(),
        }
    }

    /// The index of the stored value: dimension d is the mixed-radix number of its factors.
    fn root_index(&self, rank: usize) -> Idx {
        let mut idx: Idx = SmallVec::from_elem(Affine::default(), rank);
        let mut scale: Vec<i64> = vec![1; rank];
        for (axis, a) in self.axes.iter().enumerate().rev() {
            if let Origin::Root(d, _) = a.origin {
                if a.extent > 1 {
                    let affine = Affine::term(axis as u32, scale[d]);
                    idx[d].add_scaled(&affine, 1);
                }
                scale[d] *= a.extent;
            }
        }
        idx
    }

    fn need(&mut self, t: T) {
        if !self.needs.contains(&t) {
            self.needs.push(t);
        }
    }

    fn add(&mut self, point: Point) -> PointId {
        let id = PointId(self.points.len() as u32);
        self.numbers.insert((point.t, point.idx.clone()), id);
        self.points.push(point);
        id
    }

    fn leaf(&mut self, t: T, idx: Idx, load: Option<Place>) -> PointId {
        self.add(Point { t, idx, operands: SmallVec::new(), level: 0, load })
    }

    fn visit(&mut self, t: T, idx: Idx) -> Result<PointId, Stop> {
        let exprs = self.unfolder.exprs;
        // Constants have no index.
        let idx = if exprs.is_const(t) { Idx::new() } else { idx };
        if let Some(id) = self.numbers.get(&(t, idx.clone())) {
            return Ok(*id);
        }
        if let Some(place) = self.unfolder.places.get(&t) {
            return Ok(self.leaf(t, idx, Some(place.clone())));
        }
        let expr = exprs.get(t);
        if !exprs.is_const(t) && idx.len() != expr.sizes.len() {
            return Err(Stop::Bug("index of another rank"));
        }
        if self.points.len() > MAX_POINTS {
            self.need(t);
            return Ok(self.leaf(t, idx, None));
        }
        let is_work = matches!(expr.kind, Kind::Op(..) | Kind::Reduce { .. });
        if is_work && !exprs.is_const(t) && self.unfolder.costs.cost(t) > 3 {
            // The same work at two indices of one kernel: once is enough.
            if self.first_idx.contains_key(&t) {
                self.need(t);
                return Ok(self.leaf(t, idx, None));
            }
        }
        let operands: SmallVec<[PointId; 3]> = match &expr.kind {
            Kind::Buffer { value, dtype, strides, offset, .. } => {
                let place = Place { value: *value, dtype: *dtype, strides: strides.clone(), offset: *offset };
                return Ok(self.leaf(t, idx, Some(place)));
            }
            Kind::Float(_) | Kind::Int(_) | Kind::Iota(_) => return Ok(self.leaf(t, idx, None)),
            Kind::Concat { .. } => {
                self.need(t);
                return Ok(self.leaf(t, idx, None));
            }
            Kind::Op(_, args) => {
                let mut operands = SmallVec::new();
                for arg in args {
                    operands.push(self.visit(*arg, idx.clone())?);
                }
                operands
            }
            Kind::Cast(of) | Kind::Round(_, of) => SmallVec::from_slice(&[self.visit(*of, idx.clone())?]),
            Kind::View { of, layout, strides, offset } => {
                let of_sizes = exprs.sizes(*of);
                let repeats = expr.sizes.iter().product::<i64>() > of_sizes.iter().product::<i64>();
                if repeats
                    && self.unfolder.costs.cost(*of) > 4
                    && !self.unfolder.costs.has_reduce(*of)
                    && !self.unfolder.places.contains_key(of)
                {
                    self.need(*of);
                    return Ok(self.leaf(t, idx, None));
                }
                let at = address(&idx, strides, *offset);
                match delinearize(at, of_sizes, layout, &self.extents) {
                    Ok(inner) => SmallVec::from_slice(&[self.visit(*of, inner)?]),
                    Err(Obstacle::Split { dim, inner }) => return Err(Stop::Split { axis: dim as usize, inner }),
                    Err(Obstacle::NotAffine) => {
                        self.need(*of);
                        return Ok(self.leaf(t, idx, None));
                    }
                }
            }
            Kind::Reduce { of, dims, .. } => match self.reduce_index(*of, dims, &idx)? {
                Some(inner) => SmallVec::from_slice(&[self.visit(*of, inner)?]),
                None => {
                    self.need(t);
                    return Ok(self.leaf(t, idx, None));
                }
            },
        };
        let below = operands.iter().map(|o| self.points[o.0 as usize].level).max().unwrap_or(0);
        let level = below + u32::from(matches!(expr.kind, Kind::Reduce { .. }));
        let id = self.add(Point { t, idx, operands, level, load: None });
        self.first_idx.insert(t, id);
        Ok(id)
    }

    /// The index of a reduction's operand, if the reduction fits the kernel.
    fn reduce_index(&mut self, of: T, dims: &[u32], idx: &Idx) -> Result<Option<Idx>, Stop> {
        let sizes = self.unfolder.exprs.sizes(of).clone();
        let is_reduced = |d: usize| dims.contains(&(d as u32));
        let mut used = vec![false; self.axes.len()];
        for (d, affine) in idx.iter().enumerate() {
            if !is_reduced(d) {
                affine.terms.iter().for_each(|(axis, _)| used[*axis as usize] = true);
            }
        }
        let rest: Vec<usize> = (0..self.axes.len()).filter(|a| !used[*a] && self.extents[*a] > 1).collect();
        let reduced: Vec<i64> = (0..sizes.len()).filter(|d| is_reduced(*d)).map(|d| sizes[d]).collect();
        let total: i64 = reduced.iter().product();
        if !self.has_reduce {
            if rest.is_empty() {
                self.create_axes(&reduced);
            } else {
                if rest.iter().map(|a| self.extents[*a]).product::<i64>() != total {
                    return Ok(None);
                }
                for a in &rest {
                    self.axes[*a].kind = DimKind::Reduce;
                }
            }
            self.has_reduce = true;
        } else {
            let rest_is_reduce = rest.iter().all(|a| self.axes[*a].kind == DimKind::Reduce);
            let used_is_parallel = (0..used.len()).all(|a| !used[a] || self.axes[a].kind == DimKind::Parallel);
            if !rest_is_reduce || !used_is_parallel {
                return Ok(None);
            }
        }
        let axes: Vec<usize> =
            (0..self.axes.len()).filter(|a| self.axes[*a].kind == DimKind::Reduce && self.extents[*a] > 1).collect();
        if axes.iter().map(|a| self.extents[*a]).product::<i64>() != total {
            return Ok(None);
        }
        // The linear index over the reduce axes, taken apart over the reduced dimensions.
        let mut linear = Affine::default();
        let mut scale = 1;
        for a in axes.iter().rev() {
            linear.add_scaled(&Affine::term(*a as u32, scale), 1);
            scale *= self.extents[*a];
        }
        let layout = oxy_graph::meta::contiguous_strides(&reduced);
        let parts = match delinearize(linear, &reduced, &layout, &self.extents) {
            Ok(parts) => parts,
            Err(Obstacle::Split { dim, inner }) => return Err(Stop::Split { axis: dim as usize, inner }),
            Err(Obstacle::NotAffine) => return Ok(None),
        };
        let mut inner = idx.clone();
        let mut parts = parts.into_iter();
        for (d, affine) in inner.iter_mut().enumerate() {
            if is_reduced(d) {
                *affine = parts.next().unwrap_or_default();
            }
        }
        Ok(Some(inner))
    }

    fn create_axes(&mut self, reduced: &[i64]) {
        for extent in reduced {
            let d = self.n_created;
            self.n_created += 1;
            let whole = [*extent];
            let factors = match self.reduce_factors.get(d) {
                Some(factors) if !factors.is_empty() => factors.as_slice(),
                _ => &whole,
            };
            for (j, extent) in factors.iter().enumerate() {
                self.axes.push(Axis { extent: *extent, kind: DimKind::Reduce, origin: Origin::Reduce(d, j) });
                self.extents.push(*extent);
            }
        }
    }
}

impl Points {
    pub fn get(&self, id: PointId) -> &Point {
        &self.points[id.0 as usize]
    }

    pub fn has_reduce(&self) -> bool {
        self.kinds.contains(&DimKind::Reduce)
    }

    /// Whether an index depends on a reduce dimension.
    pub fn is_full(&self, id: PointId) -> bool {
        self.is_full_index(&self.get(id).idx)
    }

    pub fn is_full_index(&self, idx: &[Affine]) -> bool {
        let terms = |a: &Affine| a.terms.iter().any(|(axis, _)| self.kinds[*axis as usize] == DimKind::Reduce);
        idx.iter().any(terms)
    }

    /// Whether the index runs over all elements of the expression exactly once: over the whole iteration space, or
    /// over its parallel part.
    pub fn is_onto(&self, id: PointId, sizes: &[i64]) -> bool {
        let point = self.get(id);
        let full = self.is_full(id);
        let mut seen = vec![false; self.extents.len()];
        for (affine, size) in point.idx.iter().zip(sizes) {
            let mut terms: Vec<(u32, i64)> = affine.terms.to_vec();
            terms.sort_by_key(|t| t.1);
            let mut expected = 1;
            for (axis, coefficient) in terms {
                if coefficient != expected || std::mem::replace(&mut seen[axis as usize], true) {
                    return false;
                }
                expected *= self.extents[axis as usize];
            }
            if affine.base != 0 || expected != *size {
                return false;
            }
        }
        (0..seen.len()).all(|a| seen[a] || self.extents[a] == 1 || (!full && self.kinds[a] == DimKind::Reduce))
    }
}
