//! Addresses, loads and stores of bundles.
//!
//! Along the vector dimension a stride of 1 is a vector access, 0 is one scalar access for all points, and
//! anything else (or a data-dependent term that differs between points) is done lane by lane. Lanes whose mask is
//! false read eight zero bytes on the stack instead of the parameter, so no address outside it is touched.

use crate::{
    emit::{Emit, Kind, Val},
    llvm::Value,
    spell,
};
use oxy_graph::DType;
use oxy_loops::Index;

/// Where in the iteration space code is being emitted.
#[derive(Clone)]
pub struct Cursor<'c> {
    /// Index along each dimension whose loop is open (the first point's, along the vector dimension).
    pub index: Vec<Option<Value<'c>>>,
    /// Open dimensions, outermost first: addresses are summed in this order so that outer parts are invariant.
    pub order: Vec<usize>,
    /// The dimension that lanes and copies run along.
    pub vector: Option<usize>,
    pub lanes: u32,
    pub copies: u32,
    /// Which lanes exist (last, incomplete vector of a range); one copy.
    pub mask: Option<Val<'c>>,
}

impl<'c> Cursor<'c> {
    pub fn new(dims: usize) -> Cursor<'c> {
        Cursor { index: vec![None; dims], order: Vec::new(), vector: None, lanes: 1, copies: 1, mask: None }
    }

    /// This cursor with one more open dimension.
    pub fn at(&self, dim: usize, index: Value<'c>) -> Cursor<'c> {
        let mut cursor = self.clone();
        cursor.index[dim] = Some(index);
        cursor.order.push(dim);
        cursor
    }

    fn is_scalar(&self) -> bool {
        self.lanes == 1 && self.copies == 1
    }
}

/// A parameter of the kernel being compiled.
#[derive(Clone, Copy)]
pub struct Buffer<'c> {
    pub pointer: Value<'c>,
    pub dtype: DType,
    pub storage: Kind,
}

/// Element addresses of a bundle, in elements.
struct Place<'c> {
    /// Of the first point.
    base: Value<'c>,
    /// Between neighbouring points.
    stride: i64,
    /// Per-point addend, if the address depends on data that differs between points.
    varying: Option<Val<'c>>,
}

fn place<'c>(e: &Emit<'c>, cursor: &Cursor<'c>, index: &Index, values: &[Val<'c>]) -> Place<'c> {
    let b = &e.builder;
    let mut base = e.index(index.base);
    for &dim in &cursor.order {
        if let (Some(i), stride) = (cursor.index[dim], index.strides[dim])
            && stride != 0
        {
            base = b.add(base, if stride == 1 { i } else { b.mul(i, e.index(stride)) });
        }
    }
    let stride = cursor.vector.map_or(0, |dim| index.strides[dim]);
    let mut varying: Option<Val> = None;
    for (value, stride) in &index.indirect {
        let value = values[value.0 as usize];
        let term = if *stride == 1 { value } else { e.mul(value, e.int(Kind::I64, *stride)) };
        if term.lanes == 1 && term.copies == 1 {
            base = b.add(base, term.copy(0));
        } else {
            varying = Some(varying.map_or(term, |sum| e.add(sum, term)));
        }
    }
    Place { base, stride, varying }
}

impl<'c> Place<'c> {
    /// Address of a copy's first point.
    fn of_copy(&self, e: &Emit<'c>, buffer: &Buffer<'c>, cursor: &Cursor<'c>, copy: u32) -> Value<'c> {
        let b = &e.builder;
        let element = e.ty(buffer.storage);
        let first = b.gep(element, buffer.pointer, self.base);
        let offset = i64::from(copy * cursor.lanes) * self.stride;
        if offset == 0 { first } else { b.gep(element, first, e.index(offset)) }
    }

    /// Address of one point.
    fn of_lane(&self, e: &Emit<'c>, buffer: &Buffer<'c>, cursor: &Cursor<'c>, copy: u32, lane: u32) -> Value<'c> {
        let b = &e.builder;
        let element = e.ty(buffer.storage);
        let mut address = self.of_copy(e, buffer, cursor, copy);
        if lane > 0 && self.stride != 0 {
            address = b.gep(element, address, e.index(i64::from(lane) * self.stride));
        }
        match self.varying {
            Some(v) => b.gep(element, address, lane_of(e, v, copy, lane)),
            None => address,
        }
    }
}

fn lane_of<'c>(e: &Emit<'c>, a: Val<'c>, copy: u32, lane: u32) -> Value<'c> {
    if a.lanes == 1 { a.copy(copy) } else { e.builder.extract(a.copy(copy), e.context.int(32).int_const(lane.into())) }
}

/// Loads elements and converts them to the compute type. Lanes whose `mask` is false give 0.
pub fn load<'c>(
    e: &Emit<'c>,
    cursor: &Cursor<'c>,
    buffer: &Buffer<'c>,
    index: &Index,
    mask: Option<Val<'c>>,
    values: &[Val<'c>],
) -> Val<'c> {
    let place = place(e, cursor, index, values);
    let raw = load_raw(e, cursor, buffer, &place, mask);
    spell::widen(e, buffer.dtype, raw)
}

fn load_raw<'c>(
    e: &Emit<'c>,
    cursor: &Cursor<'c>,
    buffer: &Buffer<'c>,
    place: &Place<'c>,
    mask: Option<Val<'c>>,
) -> Val<'c> {
    let storage = buffer.storage;
    let uniform_mask = mask.is_none_or(|m| m.lanes == 1 && m.copies == 1);
    let one_address = place.varying.is_none() && (place.stride == 0 || cursor.is_scalar());
    if one_address && uniform_mask {
        let address = place.of_copy(e, buffer, cursor, 0);
        return Val::scalar(storage, load_element(e, storage, address, mask.map(|m| m.copy(0))));
    }
    // Tail lanes beyond the range must not be read either.
    let mask = match (mask, cursor.mask) {
        (Some(a), Some(b)) => Some(e.and(a, b)),
        (a, b) => a.or(b),
    };
    let contiguous = place.varying.is_none() && place.stride == 1 && cursor.lanes > 1;
    let ty = e.ty(storage).vector(cursor.lanes);
    let copies: Vec<Value> = match mask {
        None if contiguous => (0..cursor.copies)
            .map(|copy| e.builder.load(ty, place.of_copy(e, buffer, cursor, copy), storage.bytes()))
            .collect(),
        Some(mask) if contiguous && can_mask(e, storage) => {
            let mask = e.widen(mask, cursor.lanes);
            (0..cursor.copies)
                .map(|copy| {
                    let address = place.of_copy(e, buffer, cursor, copy);
                    let align = e.context.int(32).int_const(storage.bytes().into());
                    let args = [address, align, mask.copy(copy), ty.null()];
                    e.builder.intrinsic(&e.module, "llvm.masked.load", &[ty, address.ty()], &args)
                })
                .collect()
        }
        _ => (0..cursor.copies).map(|copy| load_lanes(e, cursor, buffer, place, mask, copy)).collect(),
    };
    Val::bundle(storage, cursor.lanes, &copies)
}

fn load_lanes<'c>(
    e: &Emit<'c>,
    cursor: &Cursor<'c>,
    buffer: &Buffer<'c>,
    place: &Place<'c>,
    mask: Option<Val<'c>>,
    copy: u32,
) -> Value<'c> {
    let element = |lane| {
        let address = place.of_lane(e, buffer, cursor, copy, lane);
        load_element(e, buffer.storage, address, mask.map(|m| lane_of(e, m, copy, lane)))
    };
    if cursor.lanes == 1 {
        return element(0);
    }
    let mut vector = e.ty(buffer.storage).vector(cursor.lanes).poison();
    for lane in 0..cursor.lanes {
        vector = e.builder.insert(vector, element(lane), e.context.int(32).int_const(lane.into()));
    }
    vector
}

fn load_element<'c>(e: &Emit<'c>, storage: Kind, address: Value<'c>, mask: Option<Value<'c>>) -> Value<'c> {
    let address = match mask {
        Some(mask) => e.builder.select(mask, address, e.zeros()),
        None => address,
    };
    e.builder.load(e.ty(storage), address, storage.bytes())
}

/// Whether vectors of this kind can be loaded and stored under a mask in hardware.
pub fn can_mask(e: &Emit<'_>, storage: Kind) -> bool {
    if storage.bits() >= 32 { e.target.has_masks } else { e.target.has_narrow_masks }
}

/// Converts values to the storage dtype and stores them. Under a tail mask the place must be contiguous.
pub fn store<'c>(
    e: &Emit<'c>,
    cursor: &Cursor<'c>,
    buffer: &Buffer<'c>,
    index: &Index,
    value: Val<'c>,
    values: &[Val<'c>],
) {
    let place = place(e, cursor, index, values);
    let (b, storage) = (&e.builder, buffer.storage);
    let raw = spell::narrow(e, buffer.dtype, value);
    if cursor.is_scalar() {
        b.store(raw.copy(0), place.of_lane(e, buffer, cursor, 0, 0), storage.bytes());
        return;
    }
    let raw = e.promote(raw, cursor.lanes, cursor.copies);
    let contiguous = place.varying.is_none() && place.stride == 1;
    for copy in 0..cursor.copies {
        if contiguous {
            let address = place.of_copy(e, buffer, cursor, copy);
            match cursor.mask {
                None => b.store(raw.copy(copy), address, storage.bytes()),
                Some(mask) => {
                    let align = e.context.int(32).int_const(storage.bytes().into());
                    let vector = raw.copy(copy);
                    let args = [vector, address, align, mask.copy(copy)];
                    b.intrinsic(&e.module, "llvm.masked.store", &[vector.ty(), address.ty()], &args);
                }
            }
            continue;
        }
        for lane in 0..cursor.lanes {
            let address = place.of_lane(e, buffer, cursor, copy, lane);
            b.store(lane_of(e, raw, copy, lane), address, storage.bytes());
        }
    }
}

/// The index along a dimension, as I64 values.
pub fn iota<'c>(e: &Emit<'c>, cursor: &Cursor<'c>, dim: usize) -> Val<'c> {
    let first = cursor.index[dim].unwrap_or_else(|| e.index(0));
    if cursor.vector != Some(dim) || cursor.is_scalar() {
        return Val::scalar(Kind::I64, first);
    }
    let lane_numbers: Vec<Value> = (0..cursor.lanes).map(|l| e.index(l.into())).collect();
    let copies: Vec<Value> = (0..cursor.copies)
        .map(|copy| {
            let start = e.builder.add(first, e.index((copy * cursor.lanes).into()));
            if cursor.lanes == 1 {
                return start;
            }
            e.builder.add(e.splat_value(start, cursor.lanes), Value::const_vector(&lane_numbers))
        })
        .collect();
    Val::bundle(Kind::I64, cursor.lanes, &copies)
}
