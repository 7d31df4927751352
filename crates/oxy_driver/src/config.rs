//! THE CONFIG TABLE: name, default, what it means. The Python facade forwards assignments by name.

use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! config {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $default:expr;)*) => {
        /// Current values of the options that the engine reads.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($(#[$doc])* pub $name: $ty,)*
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($name: $default,)* }
            }
        }

        impl Config {
            /// Sets an option by its name; false if the engine has none of that name.
            pub fn set(&mut self, name: &str, value: Value) -> Result<bool, String> {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$ty as Setting>::read(value)
                            .ok_or_else(|| format!("config.{name} takes {}", <$ty as Setting>::KIND))?;
                        Ok(true)
                    })*
                    _ => Ok(false),
                }
            }
        }
    };
}

config! {
    /// Segments per entry point of one compiled callable, before it runs uncompiled there.
    recompile_limit: i64 = 8;
    /// Segments per code object over all entry points.
    accumulated_recompile_limit: i64 = 256;
    /// Reaching the limit is an error.
    fail_on_recompile_limit_hit: bool = false;
    /// Any recompilation is an error.
    error_on_recompile: bool = false;
    /// Faults of compilation fall back to eager.
    suppress_errors: bool = false;
    /// Compilation is off.
    disable: bool = false;
    /// Faults of the engine are errors instead of eager runs (tests).
    strict: bool = false;
    /// Panics where a test asks for it: "trace" or empty.
    inject_panic: String = String::new();
    /// Captured ATen graphs are logged.
    print_graphs: bool = false;
    /// How compiled callables behave in this process: a name of `set_stance`.
    stance: String = "default".to_owned();
    /// Inlined calls nested deeper end a segment.
    inline_depth_max: i64 = 120;
}

/// A value from Python.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Text(String),
}

trait Setting: Sized {
    const KIND: &'static str;
    fn read(value: Value) -> Option<Self>;
}

impl Setting for bool {
    const KIND: &'static str = "a bool";
    fn read(value: Value) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(value),
            Value::Int(value) => Some(value != 0),
            Value::Text(_) => None,
        }
    }
}

impl Setting for i64 {
    const KIND: &'static str = "an int";
    fn read(value: Value) -> Option<i64> {
        match value {
            Value::Int(value) => Some(value),
            Value::Bool(value) => Some(value as i64),
            Value::Text(_) => None,
        }
    }
}

impl Setting for String {
    const KIND: &'static str = "a str";
    fn read(value: Value) -> Option<String> {
        match value {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }
}

/// The process's configuration.
#[derive(Default)]
pub struct SharedConfig {
    values: RwLock<Config>,
    /// Compiled callables run eagerly (`disable`, a stance); kept apart for the path of every call.
    is_off: AtomicBool,
}

impl SharedConfig {
    pub fn get(&self) -> Config {
        self.values.read().clone()
    }

    pub fn set(&self, name: &str, value: Value) -> Result<bool, String> {
        let mut values = self.values.write();
        let known = values.set(name, value)?;
        self.is_off.store(values.disable || values.stance == "force_eager", Ordering::Relaxed);
        Ok(known)
    }

    /// Whether compiled callables run eagerly in this process.
    pub fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }
}
