//! Rows of import statements and of the namespaces of modules and classes.

use oxy_bytecode::NameId;
use pyo3::ffi;

use super::{Flow, StepResult, stepper::Stepper};
use crate::capi::{self, Outcome, Owned, Raised, Ref};

pub(super) fn import_name(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    let module = import(s, s.name(name)?);
    s.replace(2, module)
}

fn import(s: &Stepper<'_, '_>, name: Ref<'_>) -> Outcome<Owned> {
    let found = capi::get_optional_item(s.builtins()?, capi::new_str(c"__import__")?.borrow())?;
    let import = found.ok_or_else(|| capi::raise(capi::import_error(), c"__import__ not found"))?;
    let none = Owned::none();
    let locals = s.locals().unwrap_or(none.borrow());
    capi::call(import.borrow(), &[name, s.globals()?, locals, s.peek(0)?, s.peek(1)?])
}

pub(super) fn import_from(s: &mut Stepper<'_, '_>, name: NameId) -> StepResult {
    match find_from(s.peek(0)?, s.name(name)?)? {
        Some(value) => {
            s.push(value);
            Ok(Flow::Next)
        }
        // The explanation of a failed import is long and differs between versions: the interpreter looks again.
        None => Ok(Flow::MustLeave),
    }
}

/// The attribute of the module, or the submodule that a circular import hasn't bound yet.
fn find_from(module: Ref<'_>, name: Ref<'_>) -> Outcome<Option<Owned>> {
    if let Some(value) = capi::get_optional_attr(module, name)? {
        return Ok(Some(value));
    }
    let Some(package) = capi::get_optional_attr(module, capi::new_str(c"__name__")?.borrow())? else {
        return Ok(None);
    };
    if !capi::is_str(package.borrow()) {
        return Ok(None);
    }
    // SAFETY: two live strings for `%U`; NULL from the lookup may come without an exception.
    let found = unsafe {
        let full =
            Owned::from_new(ffi::PyUnicode_FromFormat(c"%U.%U".as_ptr(), package.borrow().as_ptr(), name.as_ptr()))?;
        Owned::from_new(ffi::PyImport_GetModule(full.borrow().as_ptr()))
    };
    match found {
        Ok(module) => Ok(Some(module)),
        Err(Raised) if capi::is_raised() => Err(Raised),
        Err(Raised) => Ok(None),
    }
}

pub(super) fn setup_annotations(s: &mut Stepper<'_, '_>) -> StepResult {
    let locals =
        s.locals().ok_or_else(|| capi::raise(capi::system_error(), c"no locals found when setting up annotations"))?;
    let name = capi::new_str(c"__annotations__")?;
    if capi::get_optional_item(locals, name.borrow())?.is_none() {
        let annotations = capi::new_dict()?;
        capi::set_item(locals, name.borrow(), annotations.borrow())?;
    }
    Ok(Flow::Next)
}
