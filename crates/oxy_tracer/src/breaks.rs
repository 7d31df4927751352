//! THE TABLE of break reasons: id, title, explanation, hint. Each id has a page in `docs/breaks/`.

use crate::frame::Place;

/// Why a segment ended before its frame did.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable identifier, `OXnnnn`.
    pub id: &'static str,
    pub title: &'static str,
    pub explanation: &'static str,
    pub hint: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal, $explanation:literal, $hint:literal;)*) => {
        $($(#[$doc])* pub const $name: &Reason =
            &Reason { id: $id, title: $title, explanation: $explanation, hint: $hint };)*
        /// Every reason, in id order.
        pub const ALL: &[&Reason] = &[$($name),*];
    };
}

reasons! {
    EXPLICIT = "OX0001", "graph_break() was called",
        "The program asked for a graph break here.",
        "Remove the call to capture this code in one graph.";
    DATA_DEPENDENT_BRANCH = "OX0002", "Data-dependent branching",
        "A branch depends on the value of a tensor, which is known only when the graph runs.",
        "Use torch.where or torch.cond, or compute the condition from shapes or Python values.";
    DATA_DEPENDENT_VALUE = "OX0003", "Tensor value read by Python",
        "A tensor's value becomes a Python number or list, which is known only when the graph runs.",
        "Keep the value as a tensor, or set config.capture_scalar_outputs = True.";
    DYNAMIC_SHAPE_OPERATOR = "OX0004", "Operator whose result shape depends on data",
        "The size of this operator's result depends on the values of its inputs.",
        "Use a formulation with static shapes, such as torch.where with three arguments or a mask.";
    UNSUPPORTED_CALL = "OX0005", "Call of a function that can't be traced",
        "The function is implemented in C or does input and output, so its effects can't be seen by the tracer.",
        "Move the call out of the compiled region, or wrap it in a custom operator (torch.library.custom_op).";
    DISABLED_CALL = "OX0006", "Call of a disabled function",
        "The function is marked with disable(), so it runs eagerly.",
        "Remove the marking to capture it, or accept the break.";
    UNSUPPORTED_INSTRUCTION = "OX0007", "Instruction that isn't traced",
        "The tracer has no symbolic meaning for this bytecode instruction.",
        "Rewrite the statement, or accept the break.";
    UNSUPPORTED_OPERATION = "OX0008", "Operation on a value that isn't traced",
        "The operation's operands are of kinds for which the tracer doesn't know its result.",
        "Convert the operands to tensors or plain Python values.";
    UNSUPPORTED_ATTRIBUTE = "OX0009", "Attribute that isn't traced",
        "Reading or writing this attribute runs code that the tracer can't follow.",
        "Read the attribute before the compiled region and pass its value in.";
    UNSUPPORTED_MUTATION = "OX0010", "Mutation that isn't traced",
        "The object would be changed in a way that can't be replayed after the graph.",
        "Move the mutation out of the compiled region.";
    UNKNOWN_ITERATOR = "OX0011", "Iterator that isn't traced",
        "The iterator was made outside of the traced code, or by code that the tracer can't follow.",
        "Iterate over a list, tuple, dict, range or generator made in the compiled function.";
    EXCEPTION_ESCAPES = "OX0012", "An exception leaves the function",
        "The traced code raises an exception that no traced handler catches.",
        "Nothing to do if the exception is meant: it is raised as in eager.";
    BACKEND_STATE = "OX0013", "Change of global state",
        "The call changes process-wide state, such as a random seed or autocast.",
        "Set global state outside of the compiled region.";
    GENERATOR = "OX0014", "Generator leaves the traced code",
        "A generator that has been started would be alive after the segment.",
        "Exhaust the generator in the compiled function, or make it outside.";
    REBUILD = "OX0015", "Value that can't be rebuilt",
        "A value made by the traced code is still alive at the end of the segment and can't be rebuilt.",
        "Don't keep such values across a graph break.";
    FAKE_CALL = "OX0016", "Operator failed on fake tensors",
        "The operator raised an error while its result shape was computed.",
        "If eager accepts the call, report it; otherwise the same error is raised by eager.";
    RECURSION = "OX0017", "Calls nested too deeply",
        "The traced calls are nested deeper than the tracer follows.",
        "Replace the recursion by a loop, or accept the break.";
    TOO_LONG = "OX0018", "Trace too long",
        "The segment executed more instructions than the tracer follows, most often in a long loop.",
        "Break the loop up, or mark its body with disable().";
    IMPORT = "OX0019", "Import of a module that isn't loaded",
        "Importing runs the module's code.",
        "Import the module at the top of the file.";
    STANCE = "OX0020", "set_stance in compiled code",
        "set_stance() can't change how code runs that is being compiled.",
        "Call set_stance outside of the compiled region.";
}

/// One break.
#[derive(Debug)]
pub struct Break {
    pub reason: &'static Reason,
    /// What exactly, in this case.
    pub detail: String,
    /// The user's frames, outermost first.
    pub stack: Vec<Place>,
    /// What `error_on_graph_break` says where it happened.
    pub strict: Option<bool>,
}

impl Break {
    /// The message of `oxyfuel.exc.Unsupported`.
    pub fn message(&self, source_line: impl Fn(&str, u32) -> Option<String>) -> String {
        let mut text = format!("{}\n", self.reason.title);
        text += &format!("  Explanation: {}\n", self.reason.explanation);
        text += &format!("  Hint: {}\n", self.reason.hint);
        let logs = self.stack.iter().any(|place| place.file.ends_with("logging/__init__.py"));
        if logs || self.detail.contains("print") || self.detail.contains("warn") {
            text += "  Hint: config.reorderable_logging_functions moves such calls to the end of the graph; \
                     config.ignore_logging_functions leaves them out.\n";
        }
        text += &format!("  Context: {}\n", self.detail);
        text += &format!("  Id: {} (docs/breaks/{}.md)\n\nfrom user code:\n", self.reason.id, self.reason.id);
        for place in &self.stack {
            text += &format!("  File \"{}\", line {}, in {}\n", place.file, place.line, place.function);
            if let Some(line) = source_line(&place.file, place.line) {
                text += &format!("    {}\n", line.trim());
            }
        }
        text
    }
}

/// Why tracing can't go on as it is.
#[derive(Debug)]
pub enum Stop {
    Break(Box<Break>),
    /// A Python exception of the traced program, as a traced value.
    Raise(crate::value::Val),
    /// A fault of ours: the frame runs eagerly.
    Bug(String),
}

impl From<pyo3::PyErr> for Stop {
    fn from(error: pyo3::PyErr) -> Stop {
        Stop::Bug(error.to_string())
    }
}

impl From<pyo3::CastIntoError<'_>> for Stop {
    fn from(error: pyo3::CastIntoError<'_>) -> Stop {
        Stop::Bug(error.to_string())
    }
}

pub type R<T> = Result<T, Stop>;
