//! Putting expressions into memory: grouping into kernels, extra results, launches.
//!
//! A kernel stores what was asked for and, on the way, what it computes anyway and others will read: values that are
//! used later (unless recomputing them is nearly free) and values of the same sizes that will soon be needed in
//! memory and share its inputs.

use crate::{
    LowerError, Step,
    emit::{StoreRequest, emit},
    lowering::Lowering,
    points::{Place, Points, Unfit},
};
use indexmap::IndexMap;
use oxy_graph::{Arg, ValueId, meta::Dims};
use oxy_ops::{Kind, T};
use rustc_hash::FxHashSet;

/// How many nodes ahead a value may be wanted in memory to be stored along with another.
const SIBLING_REACH: usize = 48;
const MAX_SIBLINGS: usize = 8;
const MAX_EXTRAS: usize = 12;

/// An expression and where its elements go.
#[derive(Clone, Debug)]
struct Request {
    t: T,
    place: Place,
}

impl Lowering<'_> {
    /// Puts the contents of roots into memory of their own.
    pub(crate) fn materialize(&mut self, roots: &[ValueId]) -> Result<(), LowerError> {
        let (now, last_use) = (self.now, &self.last_use);
        self.pending.retain(|p| last_use[p.0 as usize] >= now);
        let mut requests = Vec::new();
        for root in roots {
            let Some(state) = self.roots.get(root) else {
                return Err(LowerError::Malformed(format!("value {} is used before it is defined", root.0)));
            };
            if state.owned.is_some() {
                continue;
            }
            let Some(t) = state.t else {
                return Err(LowerError::Internal("a value is neither in memory nor an expression".to_owned()));
            };
            let place = self.allocate_root(*root);
            requests.push(Request { t, place });
        }
        self.store_all(requests)
    }

    /// Allocates a root's own storage and makes it the owner of its contents.
    fn allocate_root(&mut self, root: ValueId) -> Place {
        let meta = self.new_meta(root);
        let place_strides = meta.strides.clone();
        let dtype = meta.dtype;
        let value = self.new_value(root, meta.clone());
        self.program.values[value.0 as usize] = meta;
        self.program.steps.push(Step::Allocate { value });
        if let Some(state) = self.roots.get_mut(&root) {
            state.owned = Some(value);
        }
        self.pending.retain(|p| *p != root);
        Place { value, dtype, strides: place_strides, offset: 0 }
    }

    /// Stores requests, those of equal sizes together (reductions apart from elementwise work).
    fn store_all(&mut self, requests: Vec<Request>) -> Result<(), LowerError> {
        let mut groups: Vec<(Dims, bool, Vec<Request>)> = Vec::new();
        for request in requests {
            let sizes = self.exprs.sizes(request.t).clone();
            if sizes.contains(&0) {
                continue;
            }
            if let Kind::Concat { parts, dim } = self.exprs.get(request.t).kind.clone()
                && !self.places.contains_key(&request.t)
            {
                self.store_parts(&request, &parts, dim as usize)?;
                self.note_place(&request);
                continue;
            }
            let has_reduce = self.costs.has_reduce(request.t);
            match groups.iter_mut().find(|g| g.0 == sizes && g.1 == has_reduce) {
                Some(group) => group.2.push(request),
                None => groups.push((sizes, has_reduce, vec![request])),
            }
        }
        for (sizes, _, group) in groups {
            self.store_group(group, &sizes, 0)?;
        }
        Ok(())
    }

    /// Stores the parts of a concatenation into slices of its place.
    fn store_parts(&mut self, whole: &Request, parts: &[T], dim: usize) -> Result<(), LowerError> {
        let mut requests = Vec::new();
        let mut start = 0;
        for part in parts {
            let mut place = whole.place.clone();
            place.offset += start * place.strides[dim];
            start += self.exprs.sizes(*part)[dim];
            requests.push(Request { t: *part, place });
        }
        let mut groups: Vec<(Dims, Vec<Request>)> = Vec::new();
        for request in requests {
            let sizes = self.exprs.sizes(request.t).clone();
            if sizes.contains(&0) {
                continue;
            }
            match groups.iter_mut().find(|g| g.0 == sizes) {
                Some(group) => group.1.push(request),
                None => groups.push((sizes, vec![request])),
            }
        }
        for (sizes, group) in groups {
            self.store_slices(group, &sizes)?;
        }
        Ok(())
    }

    /// Like `store_group`, but what is stored is not a place of its own.
    fn store_slices(&mut self, group: Vec<Request>, sizes: &[i64]) -> Result<(), LowerError> {
        let ts: Vec<T> = group.iter().map(|r| r.t).collect();
        for _ in 0..1000 {
            match self.unfolder().unfold(&ts, sizes) {
                Ok(points) => {
                    let stores = requests_at_root(&points, &group);
                    return self.launch(&points, stores);
                }
                Err(Unfit::Needs(needs)) => self.store_needs(needs)?,
                Err(Unfit::Bug(what)) => return Err(LowerError::Internal(what.to_owned())),
            }
        }
        Err(LowerError::Internal("storing parts doesn't end".to_owned()))
    }

    /// Stores an expression into the memory of a root that holds other contents, which the expression may read.
    pub(crate) fn overwrite(&mut self, t: T, root: ValueId, value: ValueId) -> Result<(), LowerError> {
        let meta = self.new_meta(root);
        let place = Place { value, dtype: meta.dtype, strides: meta.strides.clone(), offset: 0 };
        for _ in 0..1000 {
            let points = match self.unfolder().unfold(&[t], &meta.sizes) {
                Ok(points) => points,
                Err(Unfit::Needs(needs)) => {
                    self.store_needs(needs)?;
                    continue;
                }
                Err(Unfit::Bug(what)) => return Err(LowerError::Internal(what.to_owned())),
            };
            // Elementwise, each element is read before it is written; anything else needs a copy.
            let is_elementwise = !points.has_reduce()
                && points.points.iter().all(|point| match &point.load {
                    Some(load) if load.value == value => *load == place && point.idx == points.root_idx,
                    _ => true,
                });
            if is_elementwise {
                let stores = requests_at_root(&points, &[Request { t, place }]);
                return self.launch(&points, stores);
            }
            let copy = self.temporary(meta);
            self.program.steps.push(Step::Allocate { value: copy });
            let stores = requests_at_root(&points, &[Request { t, place: Place { value: copy, ..place } }]);
            self.launch(&points, stores)?;
            self.program.steps.push(Step::Call {
                target: "aten.copy_.default".to_owned(),
                args: vec![Arg::Value(value), Arg::Value(copy)],
                kwargs: IndexMap::new(),
                outputs: vec![Some(value)],
            });
            return Ok(());
        }
        Err(LowerError::Internal("overwriting doesn't end".to_owned()))
    }

    fn note_place(&mut self, request: &Request) {
        if !self.exprs.is_const(request.t) && !matches!(self.exprs.get(request.t).kind, Kind::Buffer { .. }) {
            self.places.entry(request.t).or_insert_with(|| request.place.clone());
            self.costs.now_stored(request.t);
        }
    }

    /// Stores requests of equal sizes, in one kernel if they fit together.
    fn store_group(&mut self, group: Vec<Request>, sizes: &[i64], depth: u32) -> Result<(), LowerError> {
        if depth > 1000 {
            return Err(LowerError::Internal("storing values doesn't end".to_owned()));
        }
        let ts: Vec<T> = group.iter().map(|r| r.t).collect();
        let needs = match self.unfolder().unfold(&ts, sizes) {
            Ok(points) => return self.store_fitting(points, group, sizes),
            Err(Unfit::Needs(needs)) => needs,
            Err(Unfit::Bug(what)) => return Err(LowerError::Internal(what.to_owned())),
        };
        if group.len() == 1 {
            self.store_needs(needs)?;
            return self.store_group(group, sizes, depth + 1);
        }
        // What fits alone but not together goes alone.
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        let mut needs = Vec::new();
        for request in group {
            match self.unfolder().unfold(&[request.t], sizes) {
                Ok(_) => alone.push(request),
                Err(Unfit::Needs(own)) => {
                    needs.extend(own);
                    together.push(request);
                }
                Err(Unfit::Bug(what)) => return Err(LowerError::Internal(what.to_owned())),
            }
        }
        for request in alone {
            self.store_group(vec![request], sizes, depth + 1)?;
        }
        if together.is_empty() {
            return Ok(());
        }
        self.store_needs(needs)?;
        self.store_group(together, sizes, depth + 1)
    }

    /// Puts expressions into memory: into the storage of a root that stands for them, or into temporaries.
    fn store_needs(&mut self, mut needs: Vec<T>) -> Result<(), LowerError> {
        let mut seen = FxHashSet::default();
        needs.retain(|t| seen.insert(*t));
        let mut requests = Vec::new();
        for t in needs {
            if self.places.contains_key(&t) {
                continue;
            }
            let home =
                self.pending.iter().copied().find(|p| {
                    self.is_live(*p) && self.roots.get(p).is_some_and(|s| s.t == Some(t) && s.owned.is_none())
                });
            let place = match home {
                Some(root) => self.allocate_root(root),
                None => {
                    let meta = self.internal_meta(t);
                    let (dtype, strides) = (meta.dtype, meta.strides.clone());
                    let value = self.temporary(meta);
                    self.program.steps.push(Step::Allocate { value });
                    Place { value, dtype, strides, offset: 0 }
                }
            };
            requests.push(Request { t, place });
        }
        if requests.is_empty() {
            return Err(LowerError::Internal("an expression needs one that is in memory".to_owned()));
        }
        self.store_all(requests)
    }

    /// Stores a group that fits one kernel, with whatever else is worth storing there.
    fn store_fitting(&mut self, points: Points, mut group: Vec<Request>, sizes: &[i64]) -> Result<(), LowerError> {
        let (points, siblings) = self.with_siblings(points, &group, sizes);
        for root in siblings {
            if let Some(t) = self.roots.get(&root).and_then(|s| s.t) {
                let place = self.allocate_root(root);
                group.push(Request { t, place });
            }
        }
        let mut stores = requests_at_root(&points, &group);
        let extras = self.extras(&points, &group);
        for (root, store) in extras {
            let place = self.allocate_root(root);
            let t = points.get(store).t;
            stores.push(StoreRequest { point: store, idx: points.get(store).idx.clone(), place: place.clone() });
            group.push(Request { t, place });
        }
        self.launch(&points, stores)?;
        for request in &group {
            self.note_place(request);
        }
        Ok(())
    }

    /// Pending values of the same sizes that are soon needed in memory, read the same buffers and fit the kernel.
    fn with_siblings(&self, points: Points, group: &[Request], sizes: &[i64]) -> (Points, Vec<ValueId>) {
        let mut points = points;
        let mut ts: Vec<T> = group.iter().map(|r| r.t).collect();
        let mut siblings = Vec::new();
        let mut tries = 0;
        let reads: FxHashSet<ValueId> = points.points.iter().filter_map(|p| p.load.as_ref()).map(|l| l.value).collect();
        for root in &self.pending {
            if siblings.len() == MAX_SIBLINGS || tries == 2 * MAX_SIBLINGS {
                break;
            }
            let soon = self.memory_use[root.0 as usize].saturating_sub(self.now) <= SIBLING_REACH;
            let Some(t) = self.roots.get(root).filter(|s| s.owned.is_none()).and_then(|s| s.t) else { continue };
            if !soon
                || !self.is_live(*root)
                || self.exprs.sizes(t).as_slice() != sizes
                || ts.contains(&t)
                || self.places.contains_key(&t)
                || !self.reads_any(t, &reads)
            {
                continue;
            }
            tries += 1;
            ts.push(t);
            match self.unfolder().unfold(&ts, sizes) {
                Ok(more) if more.has_reduce() == points.has_reduce() => {
                    points = more;
                    siblings.push(*root);
                }
                _ => _ = ts.pop(),
            }
        }
        (points, siblings)
    }

    fn reads_any(&self, t: T, values: &FxHashSet<ValueId>) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![t];
        while let Some(t) = stack.pop() {
            if !seen.insert(t) {
                continue;
            }
            let value = match (self.places.get(&t), &self.exprs.get(t).kind) {
                (Some(place), _) => Some(place.value),
                (None, Kind::Buffer { value, .. }) => Some(*value),
                _ => None,
            };
            match value {
                Some(value) if values.contains(&value) => return true,
                Some(_) => {}
                None => self.exprs.for_each_operand(t, |o| stack.push(o)),
            }
        }
        false
    }

    /// Values that the kernel computes on the way and that are used after it.
    fn extras(&self, points: &Points, group: &[Request]) -> Vec<(ValueId, crate::points::PointId)> {
        let mut extras: Vec<(ValueId, crate::points::PointId)> = Vec::new();
        for root in &self.pending {
            if extras.len() == MAX_EXTRAS {
                break;
            }
            if !self.is_live(*root) {
                continue;
            }
            let Some(t) = self.roots.get(root).filter(|s| s.owned.is_none()).and_then(|s| s.t) else { continue };
            let is_output = self.last_use[root.0 as usize] == usize::MAX;
            let is_worth = is_output || self.costs.loads(t) > 1 || self.costs.cost(t) > 3;
            let is_known = self.exprs.is_const(t) || self.places.contains_key(&t) || group.iter().any(|r| r.t == t);
            if !is_worth || is_known || extras.iter().any(|(_, p)| points.get(*p).t == t) {
                continue;
            }
            let id = (0..points.points.len() as u32)
                .map(crate::points::PointId)
                .find(|p| points.get(*p).t == t && points.get(*p).load.is_none());
            if let Some(id) = id
                && points.is_onto(id, self.exprs.sizes(t))
            {
                extras.push((*root, id));
            }
        }
        extras
    }

    fn launch(&mut self, points: &Points, stores: Vec<StoreRequest>) -> Result<(), LowerError> {
        let n = self.program.kernels.len();
        let (mut kernel, buffers) = emit(&self.exprs, points, &stores, String::new())?;
        oxy_loops::schedule::schedule(&mut kernel);
        if cfg!(debug_assertions) {
            kernel.name = format!("k{n}");
            oxy_loops::verify(&kernel).map_err(|e| LowerError::Internal(e.to_string()))?;
        }
        // Layers of a model repeat: equal kernels are one.
        let same = self.program.kernels.iter().position(|k| {
            k.params == kernel.params
                && k.dims == kernel.dims
                && k.phases == kernel.phases
                && k.slots == kernel.slots
                && k.vector_dim == kernel.vector_dim
        });
        let index = match same {
            Some(i) => i,
            None => {
                kernel.name = format!("k{n}");
                self.program.kernels.push(kernel);
                n
            }
        };
        self.program.steps.push(Step::Launch { kernel: index as u32, buffers });
        Ok(())
    }
}

fn requests_at_root(points: &Points, group: &[Request]) -> Vec<StoreRequest> {
    let at = |(point, request): (&crate::points::PointId, &Request)| StoreRequest {
        point: *point,
        idx: points.root_idx.clone(),
        place: request.place.clone(),
    };
    points.roots.iter().zip(group).map(at).collect()
}
