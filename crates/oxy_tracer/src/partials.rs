//! `functools.partial` and `operator.itemgetter`, `attrgetter`, `methodcaller`: objects written in C that hold
//! arguments and call something.
//!
//! Those made by the trace are instances with their constructor's arguments; real ones are read through
//! `__reduce__`, under a guard on their identity.

use crate::breaks::{self, R, Stop};
use crate::calls::Kwargs;
use crate::tracer::Tracer;
use crate::value::{InstanceVal, Kind, Object, Val};
use indexmap::IndexMap;
use pyo3::prelude::*;

/// The attribute of an instance that holds keyword arguments.
pub const KEYWORDS: &str = "keywords";

/// What a class of this family is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    Partial,
    ItemGetter,
    AttrGetter,
    MethodCaller,
}

impl<'py> Tracer<'py, '_> {
    pub fn holder_class(&self, class: &Object<'py>) -> R<Option<Holder>> {
        let address = class.as_ptr() as usize;
        Ok(self.known.holders.iter().find(|(known, _)| *known == address).map(|(_, holder)| *holder))
    }

    /// A new holder: `functools.partial(f, 1, k=2)`.
    pub fn new_holder(&mut self, class: &Object<'py>, holder: Holder, mut args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let mut named: IndexMap<String, Val> = IndexMap::new();
        if args.is_empty() {
            return self.raise("TypeError", "expected at least 1 argument, got 0");
        }
        if holder == Holder::Partial {
            // A partial of a partial is one partial.
            let inner = args[0];
            if let Some((function, first, keywords)) = self.partial_parts(inner)? {
                let rest = args.split_off(1);
                args = vec![function];
                args.extend(first);
                args.extend(rest);
                named.extend(keywords);
            }
        }
        named.extend(kwargs);
        let keywords = self.dict(Default::default());
        for (name, val) in named {
            let key = self.str(&name);
            self.dict_insert(keywords, key, val)?;
        }
        let mut attrs = IndexMap::new();
        attrs.insert(KEYWORDS.to_owned(), keywords);
        Ok(self.add(Kind::Instance(InstanceVal { class: class.clone(), attrs, args, base: None })))
    }

    /// Function, arguments and keywords of a partial made by the trace.
    pub fn partial_parts(&mut self, val: Val) -> R<Option<(Val, Vec<Val>, Kwargs)>> {
        let Kind::Instance(instance) = self.kind(val)? else { return Ok(None) };
        let (class, args, keywords) =
            (instance.class.clone(), instance.args.clone(), instance.attrs.get(KEYWORDS).copied());
        if self.holder_class(&class)? != Some(Holder::Partial) {
            return Ok(None);
        }
        let keywords = match keywords {
            Some(keywords) => self.string_items(keywords)?,
            None => Vec::new(),
        };
        Ok(Some((args[0], args[1..].to_vec(), keywords)))
    }

    /// Items of a dict with constant string keys.
    pub fn string_items(&mut self, dict: Val) -> R<Kwargs> {
        let mut items = Vec::new();
        for (key, val) in self.mapping_items(dict)? {
            match self.as_const(key)?.and_then(|key| key.extract::<String>().ok()) {
                Some(key) => items.push((key, val)),
                None => return self.raise("TypeError", "keywords must be strings"),
            }
        }
        Ok(items)
    }

    /// A call of a holder made by the trace.
    pub fn call_new_holder(&mut self, val: Val, holder: Holder, args: Vec<Val>, kwargs: Kwargs) -> R<Val> {
        let Kind::Instance(instance) = self.peek(val) else { return Err(Stop::Bug("not a holder".to_owned())) };
        let (held, keywords) = (instance.args.clone(), instance.attrs.get(KEYWORDS).copied());
        let keywords = match keywords {
            Some(keywords) => self.string_items(keywords)?,
            None => Vec::new(),
        };
        self.call_held(holder, held, keywords, args, kwargs)
    }

    /// A call of a real itemgetter, attrgetter or methodcaller.
    pub fn call_real_holder(
        &mut self,
        callee: Val,
        object: &Object<'py>,
        holder: Holder,
        args: Vec<Val>,
        kwargs: Kwargs,
    ) -> R<Val> {
        let source = self.source_of(callee);
        let source = self.source_or_object(source, object);
        self.guard_identity(&source, object);
        let reduced = object.call_method0("__reduce__")?;
        let (maker, held): (Object<'py>, Object<'py>) = reduced.extract()?;
        if holder == Holder::MethodCaller && self.holder_class(&maker)?.is_none() {
            // `partial(methodcaller, name, **kwargs), args`
            return self.stop(breaks::UNSUPPORTED_CALL, "a methodcaller with keyword arguments");
        }
        let mut values = Vec::new();
        for value in held.try_iter()? {
            values.push(self.existing(value?));
        }
        self.call_held(holder, values, Vec::new(), args, kwargs)
    }

    fn call_held(
        &mut self,
        holder: Holder,
        held: Vec<Val>,
        keywords: Kwargs,
        args: Vec<Val>,
        kwargs: Kwargs,
    ) -> R<Val> {
        if holder == Holder::Partial {
            let all = held[1..].iter().copied().chain(args).collect();
            let mut named: IndexMap<String, Val> = keywords.into_iter().collect();
            named.extend(kwargs);
            return self.call(held[0], all, named.into_iter().collect());
        }
        let [subject] = args[..] else {
            return self.raise("TypeError", &format!("expected 1 argument, got {}", args.len()));
        };
        let mut results = Vec::with_capacity(held.len());
        match holder {
            Holder::ItemGetter => {
                for &key in &held {
                    results.push(self.get_item(subject, key)?);
                }
            }
            Holder::AttrGetter => {
                for &path in &held {
                    let Some(path) = self.as_const(path)? else {
                        return self.stop(breaks::UNSUPPORTED_CALL, "attrgetter of a name that isn't a constant");
                    };
                    let mut val = subject;
                    for name in path.extract::<String>()?.split('.') {
                        val = self.get_attr(val, name)?;
                    }
                    results.push(val);
                }
            }
            Holder::MethodCaller => {
                let Some(name) = self.as_const(held[0])? else {
                    return self.stop(breaks::UNSUPPORTED_CALL, "methodcaller of a name that isn't a constant");
                };
                let method = self.get_attr(subject, &name.extract::<String>()?)?;
                return self.call(method, held[1..].to_vec(), keywords);
            }
            Holder::Partial => {}
        }
        Ok(if results.len() == 1 { results[0] } else { self.tuple(results) })
    }

    /// `func`, `args`, `keywords` of a partial made by the trace.
    pub fn holder_attr(&mut self, val: Val, name: &str) -> R<Option<Val>> {
        let Kind::Instance(instance) = self.peek(val) else { return Ok(None) };
        let (args, keywords) = (instance.args.clone(), instance.attrs.get(KEYWORDS).copied());
        Ok(match name {
            "func" => Some(args[0]),
            "args" => Some(self.tuple(args[1..].to_vec())),
            _ if name == KEYWORDS => keywords,
            _ => instance.attrs.get(name).copied(),
        })
    }
}
