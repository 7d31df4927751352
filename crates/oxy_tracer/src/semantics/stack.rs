//! Locals, cells and globals.

use super::Run;
use crate::breaks::{R, Stop};
use crate::frame::Flow;
use crate::value::Val;
use oxy_bytecode::Var;
use oxy_guards::{PyObj, SourceKind};
use pyo3::prelude::*;

impl Run<'_, '_, '_> {
    pub(super) fn trace_load_fast(&mut self, var: Var) -> R<Flow> {
        match self.f.locals[var.index()] {
            Some(val) => self.result(val),
            None => {
                let name = self.f.code.var_names[var.index()].clone();
                let message = format!("cannot access local variable '{name}' where it is not associated with a value");
                self.t.raise("UnboundLocalError", &message)
            }
        }
    }

    pub(super) fn cell(&mut self, var: Var) -> R<Val> {
        self.f.locals[var.index()].ok_or_else(|| Stop::Bug("a cell variable has no cell".to_owned()))
    }

    /// A global, else a builtin; pending writes first.
    pub(super) fn trace_global(&mut self, name: &str) -> R<Val> {
        let globals = self.f.globals.clone();
        let key = self.t.interned(name);
        if let Some((_, written)) = self.t.global_writes.get(&(globals.as_ptr() as usize, name.to_owned())) {
            if let Some(val) = *written {
                return Ok(val);
            }
        } else {
            let source = self.f.globals_source.clone();
            match globals.get_item(&key) {
                Ok(value) => {
                    let item = self.t.src(SourceKind::DictItem(source, PyObj::new(&key)));
                    return Ok(self.t.external(value, item));
                }
                Err(_) => self.t.guard_dict_lacks(&source, &key),
            }
        }
        let builtins = self.f.builtins.clone();
        match builtins.get_item(&key) {
            Ok(value) => {
                let source = self.t.src(SourceKind::Object(PyObj::new(&builtins)));
                let item = self.t.src(SourceKind::DictItem(source, PyObj::new(&key)));
                Ok(self.t.external(value, item))
            }
            Err(_) => self.t.raise("NameError", &format!("name '{name}' is not defined")),
        }
    }
}
