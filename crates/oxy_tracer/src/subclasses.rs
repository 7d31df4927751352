//! Instances of classes derived from dict: an object with attributes and a container part.
//!
//! The container part is a tracked dict of its own. For external objects it is made when first needed and reads the
//! object through its source (C-level dict reads, past anything the class overrides); for objects made by the trace it
//! is `InstanceVal::base`.

use crate::breaks::{R, Stop};
use crate::tracer::Tracer;
use crate::value::{InstanceVal, Kind, Object, Val};
use indexmap::IndexMap;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

impl<'py> Tracer<'py, '_> {
    /// Whether a class derives from dict without being a dict class that is tracked as such.
    pub fn derives_from_dict(&self, class: &Object<'py>) -> R<bool> {
        let class_type = class.cast::<PyType>().map_err(|e| Stop::Bug(e.to_string()))?;
        Ok(class_type.is_subclass_of::<PyDict>()? && !self.known.is_dict_class(class))
    }

    /// The container part of a value, if it has one.
    pub fn container_part(&mut self, val: Val) -> R<Option<Val>> {
        self.realize(val)?;
        match self.peek(val) {
            Kind::Instance(InstanceVal { base, .. }) => Ok(*base),
            Kind::Object(object) => {
                if let Some(&part) = self.parts.get(&val) {
                    return Ok(Some(part));
                }
                let object = object.clone();
                if !self.derives_from_dict(object.get_type().as_any())? {
                    return Ok(None);
                }
                let source = self.source_of(val);
                let source = self.source_or_object(source, &object);
                let class = self.py.get_type::<PyDict>().into_any();
                let items = self.dict_items(&object, &source)?;
                let part = self.add_external(Kind::Dict { items, class, default_factory: None }, source, &object);
                self.parts.insert(val, part);
                Ok(Some(part))
            }
            _ => Ok(None),
        }
    }

    /// A new, empty instance of a class derived from dict.
    pub fn new_mapping_instance(&mut self, class: &Object<'py>) -> Val {
        let base = self.dict(IndexMap::new());
        let instance = InstanceVal { class: class.clone(), attrs: IndexMap::new(), args: Vec::new(), base: Some(base) };
        self.add(Kind::Instance(instance))
    }
}
