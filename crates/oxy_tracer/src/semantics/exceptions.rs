//! Raising, and `with`.

use super::{NEXT, Run};
use crate::breaks::{self, R, Stop};
use crate::frame::Flow;
use crate::value::Kind;
use pyo3::prelude::*;

impl Run<'_, '_, '_> {
    pub(super) fn trace_raise(&mut self, count: u32) -> R<Flow> {
        if count == 0 {
            return match self.t.handled {
                Some(exception) => Err(Stop::Raise(exception)),
                None => self.t.raise("RuntimeError", "No active exception to reraise"),
            };
        }
        let cause = if count == 2 { Some(self.pop()?) } else { None };
        let raised = self.pop()?;
        let exception = self.t.as_exception(raised)?;
        if let Some(cause) = cause {
            let is_none = matches!(self.t.kind(cause)?, Kind::Const(object) if object.is_none());
            let cause = if is_none { cause } else { self.t.as_exception(cause)? };
            let yes = self.t.bool(true);
            let Kind::Instance(instance) = self.t.kind_mut(exception) else {
                return self.t.stop(breaks::UNSUPPORTED_OPERATION, "raising an exception made outside");
            };
            instance.attrs.insert("__cause__".to_owned(), cause);
            instance.attrs.insert("__suppress_context__".to_owned(), yes);
        }
        Err(Stop::Raise(exception))
    }

    pub(super) fn trace_before_with(&mut self) -> R<Flow> {
        let manager = self.pop()?;
        let enter = self.t.special_method(manager, "__enter__")?;
        let exit = self.t.special_method(manager, "__exit__")?;
        let (Some(enter), Some(exit)) = (enter, exit) else {
            let what = self.t.describe(manager);
            let message = format!("'{what}' object does not support the context manager protocol");
            return self.t.raise("TypeError", &message);
        };
        self.push(exit);
        let entered = self.t.call(enter, Vec::new(), Vec::new())?;
        self.result(entered)
    }

    pub(super) fn trace_with_except_start(&mut self) -> R<Flow> {
        let (exception, exit) = (self.at(1)?, self.at(4)?);
        let class = self.t.type_of(exception)?;
        let class = self.t.existing(class);
        let traceback = self.t.none();
        let result = self.t.call(exit, vec![class, exception, traceback], Vec::new())?;
        self.push(result);
        NEXT
    }
}
