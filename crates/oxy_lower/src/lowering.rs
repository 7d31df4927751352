//! The walk over the graph: what stays an expression, what becomes memory, and when.
//!
//! Every value belongs to a *root*, the value whose storage it shares: itself, or what it is a view of. A root's
//! contents are a tensor expression; they are in memory (`owned`) only once somebody needs them there: an operator
//! call, a graph output, a kernel that can't compute them in place. Views are metadata until then.
//!
//! Mutation. A whole-tensor in-place operator on a storage made in this graph just gives the root another
//! expression: earlier readers keep the old one. Any other mutation is a call on real tensors: everything still
//! needed that would read the storage is stored before, and later reads see a new version of it. Calls are never
//! reordered among each other.

use crate::{
    LowerError, Options, Program, Step,
    affine::is_dense,
    cost::Costs,
    points::{Place, Unfolder},
};
use indexmap::IndexMap;
use oxy_graph::{
    Arg, Device, Graph, Node, TensorMeta, ValueId,
    meta::{Dims, contiguous_strides},
};
use oxy_ops::{Body, Effects, Exprs, Kind, OpCx, OpDef, T, expr::compute_ty};
use rustc_hash::{FxHashMap, FxHashSet};

/// Chains longer than this are cut: nothing is gained by longer ones.
const MAX_DEPTH: u32 = 120;

/// One storage.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// Its contents, with the root's sizes; None for dtypes that expressions can't handle.
    pub t: Option<T>,
    /// The program's value that has exactly these contents, in the root's own storage and strides.
    pub owned: Option<ValueId>,
    pub version: u32,
    /// Storages that may overlap have the same group.
    pub group: u32,
    /// Made in this graph, and shared with nothing but views we know of.
    pub fresh: bool,
}

pub(crate) struct Lowering<'g> {
    pub graph: &'g Graph,
    pub options: &'g Options,
    pub exprs: Exprs,
    pub costs: Costs,
    /// Expressions that are in memory.
    pub places: FxHashMap<T, Place>,
    /// The root of every graph value.
    pub root_of: Vec<ValueId>,
    pub roots: FxHashMap<ValueId, Root>,
    /// Roots whose contents are not in memory, in graph order.
    pub pending: Vec<ValueId>,
    /// The last node that uses a root or a view of it; `usize::MAX` if it is a graph output.
    pub last_use: Vec<usize>,
    /// The first node, in order, that needs a root or a view of it in memory; likewise.
    pub memory_use: Vec<usize>,
    /// The node being lowered.
    pub now: usize,
    pub program: Program,
    pub defined: FxHashSet<ValueId>,
    /// Views made in the program for reading, by the value they were made of and their metadata.
    views: FxHashMap<(ValueId, Dims, Dims, i64), ValueId>,
    /// Views made for the graph's outputs: one for each graph value, as eager has them.
    output_views: FxHashMap<ValueId, ValueId>,
    /// The group that each group was merged into.
    groups: Vec<u32>,
    /// Storages that must not be thought dead: somebody unknown may hold them.
    pinned: FxHashSet<ValueId>,
}

/// Lowers a graph that the verifier accepts.
pub(crate) fn run(graph: &Graph, options: &Options) -> Result<Program, LowerError> {
    let mut lowering = Lowering::new(graph, options);
    let needed = lowering.needed_nodes();
    lowering.analyze_uses(&needed);
    for (i, node) in graph.nodes.iter().enumerate() {
        if needed[i] {
            lowering.now = i;
            lowering.node(node)?;
        }
    }
    lowering.now = graph.nodes.len();
    lowering.finish()
}

fn is_metadata_view(graph: &Graph, node: &Node) -> bool {
    let Some(Arg::Value(of)) = node.args.first() else { return false };
    let dtype = graph.meta(*of).dtype;
    oxy_ops::is_view(&node.target) && node.outputs.iter().flatten().all(|o| graph.meta(*o).dtype == dtype)
}

/// What a node does besides its results; positions count tensor arguments as `Effects` does. None: anything.
fn node_effects(node: &Node) -> Option<Effects> {
    let mut effects = oxy_ops::effects(&node.target)?;
    let is_inference = |position: usize| node.args.get(position) == Some(&Arg::Bool(false));
    if node.target == "aten.native_batch_norm.default" && is_inference(5) {
        effects.writes.clear();
    }
    if node.kwargs.contains_key("out") {
        return None;
    }
    // A result that repeats an argument says that it was written, whatever the schema says.
    for (position, arg) in node.args.iter().enumerate() {
        if let Arg::Value(id) = arg
            && node.outputs.contains(&Some(*id))
            && !effects.writes.contains(&(position as u32))
        {
            effects.writes.push(position as u32);
        }
    }
    Some(effects)
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, options: &'g Options) -> Lowering<'g> {
        let n = graph.metas.len();
        let mut root_of: Vec<ValueId> = (0..n as u32).map(ValueId).collect();
        for node in &graph.nodes {
            if is_metadata_view(graph, node)
                && let Some(Arg::Value(of)) = node.args.first()
            {
                for out in node.outputs.iter().flatten() {
                    root_of[out.0 as usize] = root_of[of.0 as usize];
                }
            }
        }
        let mut lowering = Lowering {
            graph,
            options,
            exprs: Exprs::default(),
            costs: Costs::default(),
            places: FxHashMap::default(),
            root_of,
            roots: FxHashMap::default(),
            pending: Vec::new(),
            last_use: vec![0; n],
            memory_use: vec![usize::MAX; n],
            now: 0,
            program: Program { values: graph.metas.clone(), inputs: graph.inputs.clone(), ..Program::default() },
            defined: graph.inputs.iter().copied().collect(),
            views: FxHashMap::default(),
            output_views: FxHashMap::default(),
            groups: Vec::new(),
            pinned: FxHashSet::default(),
        };
        // Inputs of one dtype may overlap.
        let mut by_dtype = FxHashMap::default();
        for input in &graph.inputs {
            let dtype = graph.meta(*input).dtype;
            let group = *by_dtype.entry(dtype).or_insert_with(|| {
                lowering.groups.push(lowering.groups.len() as u32);
                lowering.groups.len() as u32 - 1
            });
            let root = Root { t: None, owned: Some(*input), version: 0, group, fresh: false };
            lowering.roots.insert(*input, root);
            lowering.refresh(*input);
        }
        lowering
    }

    pub fn meta(&self, v: ValueId) -> &'g TensorMeta {
        self.graph.meta(v)
    }

    pub fn root(&self, v: ValueId) -> ValueId {
        self.root_of[v.0 as usize]
    }

    fn new_group(&mut self) -> u32 {
        self.groups.push(self.groups.len() as u32);
        self.groups.len() as u32 - 1
    }

    fn find_group(&self, mut group: u32) -> u32 {
        while self.groups[group as usize] != group {
            group = self.groups[group as usize];
        }
        group
    }

    /// Nodes whose results or effects matter.
    fn needed_nodes(&self) -> Vec<bool> {
        let graph = self.graph;
        let mut live = vec![false; graph.metas.len()];
        for out in &graph.outputs {
            live[out.0 as usize] = true;
        }
        let mut needed = vec![false; graph.nodes.len()];
        for (i, node) in graph.nodes.iter().enumerate().rev() {
            let has_effect = match node_effects(node) {
                None => true,
                Some(effects) => effects.random || !effects.writes.is_empty() || oxy_ops::may_raise(&node.target),
            };
            if has_effect || node.outputs.iter().flatten().any(|o| live[o.0 as usize]) {
                needed[i] = true;
                node.for_each_input(|v| live[v.0 as usize] = true);
            }
        }
        needed
    }

    fn analyze_uses(&mut self, needed: &[bool]) {
        for (i, node) in self.graph.nodes.iter().enumerate() {
            if !needed[i] {
                continue;
            }
            let is_view = is_metadata_view(self.graph, node);
            let has_row = oxy_ops::lookup(&node.target).is_some_and(|d| matches!(d.body, Body::Expr(_)));
            node.for_each_input(|v| {
                let root = self.root_of[v.0 as usize].0 as usize;
                if !is_view {
                    self.last_use[root] = self.last_use[root].max(i);
                    if !has_row {
                        self.memory_use[root] = self.memory_use[root].min(i);
                    }
                }
            });
        }
        for out in &self.graph.outputs {
            let root = self.root_of[out.0 as usize].0 as usize;
            self.last_use[root] = usize::MAX;
            self.memory_use[root] = self.memory_use[root].min(self.graph.nodes.len());
        }
    }

    /// Whether a later node or the graph's outputs use the root.
    pub fn is_live(&self, root: ValueId) -> bool {
        self.last_use[root.0 as usize] > self.now
    }

    /// Sets a root's expression to its memory's contents.
    fn refresh(&mut self, root: ValueId) {
        let meta = self.meta(root);
        let ty = if meta.device == Device::CPU { compute_ty(meta.dtype) } else { None };
        let Some(state) = self.roots.get_mut(&root) else { return };
        state.t = match (ty, state.owned) {
            (Some(ty), Some(value)) => {
                let kind = Kind::Buffer {
                    value,
                    version: state.version,
                    dtype: meta.dtype,
                    strides: meta.strides.clone(),
                    offset: 0,
                };
                Some(self.exprs.add(meta.sizes.clone(), ty, kind))
            }
            _ => None,
        };
        self.costs.update(&self.exprs);
    }

    /// The elements of a value, as an expression with its sizes.
    fn expression(&mut self, v: ValueId) -> Option<T> {
        let root = self.root(v);
        let t = self.roots.get(&root)?.t?;
        let (of, meta) = (self.meta(root), self.meta(v));
        if v == root {
            return Some(t);
        }
        let offset = meta.storage_offset - of.storage_offset;
        let strides = meta.strides.clone();
        Some(self.exprs.view(t, of.strides.clone(), meta.sizes.clone(), strides, offset))
    }

    fn node(&mut self, node: &Node) -> Result<(), LowerError> {
        if is_metadata_view(self.graph, node) {
            return Ok(());
        }
        let effects = node_effects(node);
        if let (Some(effects), true) = (&effects, self.options.fuse)
            && !effects.random
            && effects.aliases.is_empty()
            && let Some(def) = oxy_ops::lookup(&node.target)
            && let Body::Expr(_) = def.body
        {
            let done = match effects.writes.as_slice() {
                [] => self.compute(node, def)?,
                [0] => self.compute_in_place(node, def)?,
                _ => false,
            };
            if done {
                return Ok(());
            }
        }
        self.call(node, effects)
    }

    /// The results of a row's body; None if the operator must be called.
    fn body(&mut self, node: &Node, def: &'static OpDef) -> Option<Vec<T>> {
        let Body::Expr(body) = def.body else { return None };
        let mut operands = Vec::new();
        let mut values = Vec::new();
        node.for_each_input(|v| values.push(v));
        for v in values {
            let t = self.expression(v);
            operands.push((v, t));
        }
        let absent = TensorMeta::contiguous(oxy_graph::DType::F32, &[0]);
        let outputs: Vec<TensorMeta> =
            node.outputs.iter().map(|o| o.map_or_else(|| absent.clone(), |o| self.meta(o).clone())).collect();
        self.exprs.misuse = None;
        let mut cx = OpCx::new(def, &mut self.exprs, node, &self.graph.metas, &operands, &outputs);
        let results = body(&mut cx);
        self.costs.update(&self.exprs);
        if self.exprs.misuse.take().is_some() {
            return None;
        }
        let results = results?;
        let fits = results.len() == outputs.len()
            && results.iter().zip(&outputs).all(|(t, meta)| {
                self.exprs.sizes(*t) == &meta.sizes
                    && Some(self.exprs.ty(*t)) == compute_ty(meta.dtype)
                    && meta.device == Device::CPU
                    && is_dense(&meta.sizes, &meta.strides)
            });
        fits.then_some(results)
    }

    fn compute(&mut self, node: &Node, def: &'static OpDef) -> Result<bool, LowerError> {
        let Some(results) = self.body(node, def) else { return Ok(false) };
        for (out, t) in node.outputs.iter().zip(results) {
            if let Some(out) = out {
                let group = self.new_group();
                self.roots.insert(*out, Root { t: Some(t), owned: None, version: 0, group, fresh: true });
                self.bind(*out, t)?;
            }
        }
        Ok(true)
    }

    /// Notes that a root's contents are now an expression.
    fn bind(&mut self, root: ValueId, t: T) -> Result<(), LowerError> {
        self.pending.retain(|p| *p != root);
        self.pending.push(root);
        if self.costs.depth(t) > MAX_DEPTH {
            self.materialize(&[root])?;
        }
        Ok(())
    }

    /// A whole-tensor in-place operator: on a storage of our own the root gets another expression, into an input it is
    /// stored at once.
    fn compute_in_place(&mut self, node: &Node, def: &'static OpDef) -> Result<bool, LowerError> {
        let Some(&Arg::Value(v)) = node.args.first() else { return Ok(false) };
        if node.outputs != [Some(v)] {
            return Ok(false);
        }
        let root = self.root(v);
        let (meta, of) = (self.meta(v), self.meta(root));
        let Some(state) = self.roots.get(&root) else { return Ok(false) };
        let is_whole = meta.numel() == of.numel()
            && meta.storage_offset == of.storage_offset
            && is_dense(&meta.sizes, &meta.strides)
            && is_dense(&of.sizes, &of.strides);
        let input = state.owned.filter(|_| self.graph.inputs.contains(&root));
        if !is_whole || of.numel() == 0 || (!state.fresh && input.is_none()) {
            return Ok(false);
        }
        // Other views of the written memory are errors of eager's.
        let mut others = Vec::new();
        node.for_each_input(|other| others.push(other));
        let overlaps = others.iter().any(|other| {
            let (a, b) = (self.meta(*other), meta);
            let is_same = a.sizes == b.sizes && a.strides == b.strides && a.storage_offset == b.storage_offset;
            self.root(*other) == root && !is_same
        });
        if overlaps {
            return Ok(false);
        }
        let is_fresh = state.fresh;
        let Some(results) = self.body(node, def) else { return Ok(false) };
        let [t] = results[..] else { return Ok(false) };
        // From the view's sizes back to the root's.
        let mut t = t;
        if v != root {
            if self.exprs.is_const(t) {
                let expr = self.exprs.get(t).clone();
                t = self.exprs.add(of.sizes.clone(), expr.ty, expr.kind);
            } else {
                t = self.exprs.view(t, meta.strides.clone(), of.sizes.clone(), of.strides.clone(), 0);
            }
            self.costs.update(&self.exprs);
        }
        if !is_fresh {
            let Some(value) = input else { return Ok(false) };
            self.store_readers(&[root])?;
            self.overwrite(t, root, value)?;
            self.wrote(&[root]);
            return Ok(true);
        }
        if let Some(state) = self.roots.get_mut(&root) {
            state.t = Some(t);
            state.owned = None;
        }
        self.bind(root, t)?;
        Ok(true)
    }

    /// Emits an operator call.
    fn call(&mut self, node: &Node, effects: Option<Effects>) -> Result<(), LowerError> {
        let mut arguments: Vec<(u32, ValueId)> = Vec::new();
        for (position, arg) in node.args.iter().enumerate() {
            arg.for_each_value(&mut |v| arguments.push((position as u32, v)));
        }
        for arg in node.kwargs.values() {
            arg.for_each_value(&mut |v| arguments.push((u32::MAX, v)));
        }
        let anything = effects.is_none();
        let effects = effects.unwrap_or_default();
        let is_written = |p: u32| anything || effects.writes.contains(&p);
        let is_aliased = |p: u32| anything || effects.aliases.contains(&p);
        let mut missing = Vec::new();
        for (position, v) in &arguments {
            let root = self.root(*v);
            let exact = is_written(*position) || is_aliased(*position);
            if self.readable(root, exact).is_none() && !missing.contains(&root) {
                missing.push(root);
            }
        }
        self.materialize(&missing)?;
        let written: Vec<ValueId> =
            arguments.iter().filter(|(p, _)| is_written(*p)).map(|(_, v)| self.root(*v)).collect();
        self.store_readers(&written)?;
        let mut names: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for (position, v) in &arguments {
            let exact = is_written(*position) || is_aliased(*position);
            let value = self.real(*v, exact)?;
            names.insert(*v, value);
        }
        let map = |arg: &Arg| rename(arg, &names);
        let args = node.args.iter().map(map).collect();
        let kwargs: IndexMap<String, Arg> = node.kwargs.iter().map(|(k, a)| (k.clone(), map(a))).collect();
        let mut outputs = Vec::new();
        let mut made = Vec::new();
        for out in &node.outputs {
            outputs.push(out.map(|v| match names.get(&v) {
                Some(value) => *value,
                None => {
                    made.push(v);
                    v
                }
            }));
        }
        self.program.steps.push(Step::Call { target: node.target.clone(), args, kwargs, outputs });
        let aliased: Vec<ValueId> =
            arguments.iter().filter(|(p, _)| is_aliased(*p)).map(|(_, v)| self.root(*v)).collect();
        let group = self.new_group();
        for root in &aliased {
            if let Some(state) = self.roots.get_mut(root) {
                state.fresh = false;
                let (from, to) = (state.group, group);
                let from = self.find_group(from);
                self.groups[from as usize] = to;
            }
        }
        for v in made {
            self.defined.insert(v);
            let group = if aliased.is_empty() { self.new_group() } else { group };
            let root = Root { t: None, owned: Some(v), version: 0, group, fresh: aliased.is_empty() };
            self.roots.insert(v, root);
            self.refresh(v);
            if !aliased.is_empty() {
                self.pinned.insert(v);
            }
        }
        for root in &aliased {
            let owned = self.roots.get(root).and_then(|s| s.owned);
            self.pinned.extend(owned);
        }
        self.wrote(&written);
        Ok(())
    }

    /// Roots that may overlap one of `written`.
    fn overlapping(&self, written: &[ValueId]) -> Vec<ValueId> {
        let groups: FxHashSet<u32> =
            written.iter().filter_map(|r| self.roots.get(r)).map(|s| self.find_group(s.group)).collect();
        let mut roots: Vec<ValueId> = self
            .roots
            .iter()
            .filter(|(_, s)| s.owned.is_some() && groups.contains(&self.find_group(s.group)))
            .map(|(r, _)| *r)
            .collect();
        roots.sort_unstable();
        roots
    }

    /// Before a write: stores every pending value that is still needed and would read the storage.
    fn store_readers(&mut self, written: &[ValueId]) -> Result<(), LowerError> {
        if written.is_empty() {
            return Ok(());
        }
        let values: FxHashSet<ValueId> =
            self.overlapping(written).iter().filter_map(|r| self.roots.get(r)?.owned).collect();
        let readers: Vec<ValueId> = self
            .pending
            .iter()
            .copied()
            .filter(|p| self.is_live(*p))
            .filter(|p| self.roots.get(p).and_then(|s| s.t).is_some_and(|t| self.reads(t, &values)))
            .collect();
        self.materialize(&readers)
    }

    fn reads(&self, t: T, values: &FxHashSet<ValueId>) -> bool {
        let mut seen = FxHashSet::default();
        let mut stack = vec![t];
        while let Some(t) = stack.pop() {
            if !seen.insert(t) {
                continue;
            }
            if let Some(place) = self.places.get(&t) {
                if values.contains(&place.value) {
                    return true;
                }
                continue;
            }
            if let Kind::Buffer { value, .. } = &self.exprs.get(t).kind
                && values.contains(value)
            {
                return true;
            }
            self.exprs.for_each_operand(t, |o| stack.push(o));
        }
        false
    }

    /// After a write: the storages have new contents.
    fn wrote(&mut self, written: &[ValueId]) {
        if written.is_empty() {
            return;
        }
        // What roots in memory were computed from may have changed: from here on they are their memory.
        let mut stored: Vec<ValueId> =
            self.roots.iter().filter(|(_, s)| s.owned.is_some()).map(|(root, _)| *root).collect();
        stored.sort_unstable();
        for root in stored {
            self.refresh(root);
        }
        for root in self.overlapping(written) {
            let Some(state) = self.roots.get_mut(&root) else { continue };
            state.version += 1;
            let value = state.owned;
            self.places.retain(|_, place| Some(place.value) != value);
            self.refresh(root);
        }
    }

    /// The program's value with a root's contents and strides; `exact`: in the root's own storage.
    fn readable(&self, root: ValueId, exact: bool) -> Option<ValueId> {
        let state = self.roots.get(&root)?;
        if exact || state.owned.is_some() {
            return state.owned;
        }
        let meta = self.meta(root);
        let t = state.t?;
        let (value, dtype, strides, offset) = match (self.places.get(&t), &self.exprs.get(t).kind) {
            (Some(p), _) => (p.value, p.dtype, &p.strides, p.offset),
            (None, Kind::Buffer { value, dtype, strides, offset, .. }) => (*value, *dtype, strides, *offset),
            _ => return None,
        };
        let held = self.program.values.get(value.0 as usize)?;
        let same = dtype == meta.dtype
            && *strides == meta.strides
            && offset == 0
            && held.sizes == meta.sizes
            && held.strides == meta.strides;
        same.then_some(value)
    }

    /// The program's value for a graph value whose root is in memory.
    fn real(&mut self, v: ValueId, exact: bool) -> Result<ValueId, LowerError> {
        let root = self.root(v);
        let base = self.readable(root, exact);
        let base = base.ok_or_else(|| LowerError::Internal(format!("value {} is not in memory", v.0)))?;
        if v == root {
            return Ok(base);
        }
        let (meta, of) = (self.meta(v), self.meta(root));
        let offset = meta.storage_offset - of.storage_offset;
        let key = (base, meta.sizes.clone(), meta.strides.clone(), offset);
        if let Some(view) = self.views.get(&key) {
            return Ok(*view);
        }
        let out = self.view_step(v, base, offset);
        self.views.insert(key, out);
        Ok(out)
    }

    /// The program's value for a graph output.
    fn output(&mut self, v: ValueId) -> Result<ValueId, LowerError> {
        let root = self.root(v);
        if v == root {
            return self.real(v, true);
        }
        if let Some(view) = self.output_views.get(&v) {
            return Ok(*view);
        }
        let base = self.readable(root, true);
        let base = base.ok_or_else(|| LowerError::Internal(format!("value {} is not in memory", v.0)))?;
        let offset = self.meta(v).storage_offset - self.meta(root).storage_offset;
        let out = self.view_step(v, base, offset);
        self.output_views.insert(v, out);
        Ok(out)
    }

    fn view_step(&mut self, v: ValueId, base: ValueId, offset: i64) -> ValueId {
        let out = self.new_value(v, self.meta(v).clone());
        self.program.values[out.0 as usize].storage_offset =
            self.program.values[base.0 as usize].storage_offset + offset;
        self.program.steps.push(Step::View { out, of: base, offset });
        out
    }

    /// A program value that isn't defined yet: the graph's own id the first time.
    pub fn new_value(&mut self, preferred: ValueId, meta: TensorMeta) -> ValueId {
        if self.defined.insert(preferred) {
            return preferred;
        }
        self.temporary(meta)
    }

    pub fn temporary(&mut self, meta: TensorMeta) -> ValueId {
        self.program.values.push(meta);
        let id = ValueId(self.program.values.len() as u32 - 1);
        self.defined.insert(id);
        id
    }

    pub fn unfolder(&self) -> Unfolder<'_> {
        Unfolder { exprs: &self.exprs, costs: &self.costs, places: &self.places }
    }

    fn finish(mut self) -> Result<Program, LowerError> {
        let mut missing = Vec::new();
        for out in &self.graph.outputs {
            let root = self.root(*out);
            if self.readable(root, true).is_none() && !missing.contains(&root) {
                missing.push(root);
            }
        }
        self.materialize(&missing)?;
        for out in &self.graph.outputs {
            let value = self.output(*out)?;
            self.program.outputs.push(value);
        }
        self.lifetimes();
        Ok(self.program)
    }

    /// Fills in `storage` and `last_use`.
    fn lifetimes(&mut self) {
        let program = &mut self.program;
        program.storage = (0..program.values.len() as u32).map(ValueId).collect();
        program.last_use = vec![None; program.values.len()];
        for step in &program.steps {
            if let Step::View { out, of, .. } = step {
                program.storage[out.0 as usize] = program.storage[of.0 as usize];
            }
        }
        let storage = &program.storage;
        let mut last: Vec<Option<u32>> = vec![None; program.values.len()];
        for (i, step) in program.steps.iter().enumerate() {
            step.for_each_value(|v| last[storage[v.0 as usize].0 as usize] = Some(i as u32));
        }
        for v in program.inputs.iter().chain(&program.outputs).chain(&self.pinned) {
            last[storage[v.0 as usize].0 as usize] = None;
        }
        program.last_use = storage.iter().map(|s| last[s.0 as usize]).collect();
    }

    /// Metadata of a new tensor with a graph value's sizes, strides and dtype.
    pub fn new_meta(&self, v: ValueId) -> TensorMeta {
        TensorMeta { storage_offset: 0, requires_grad: false, ..self.meta(v).clone() }
    }

    /// Metadata for an expression that no graph value stands for.
    pub fn internal_meta(&self, t: T) -> TensorMeta {
        let sizes = self.exprs.sizes(t).clone();
        let dtype = self.exprs.storage_dtype(t);
        TensorMeta { strides: contiguous_strides(&sizes), ..TensorMeta::contiguous(dtype, &sizes) }
    }
}

fn rename(arg: &Arg, names: &FxHashMap<ValueId, ValueId>) -> Arg {
    match arg {
        Arg::Value(id) => Arg::Value(names.get(id).copied().unwrap_or(*id)),
        Arg::List(items) => Arg::List(items.iter().map(|a| rename(a, names)).collect()),
        Arg::Tuple(items) => Arg::Tuple(items.iter().map(|a| rename(a, names)).collect()),
        Arg::Dict(items) => Arg::Dict(items.iter().map(|(k, a)| (rename(k, names), rename(a, names))).collect()),
        Arg::Slice(parts) => {
            Arg::Slice(Box::new([rename(&parts[0], names), rename(&parts[1], names), rename(&parts[2], names)]))
        }
        other => other.clone(),
    }
}
