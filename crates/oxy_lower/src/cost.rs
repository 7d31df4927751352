//! What expressions cost: a rough count of scalar work, for decisions about recomputing.

use oxy_loops::{ScalarOp, Ty};
use oxy_ops::{Exprs, Kind, T};

/// Facts about each expression, by its number.
#[derive(Debug, Default)]
pub struct Costs {
    facts: Vec<Fact>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fact {
    /// Work to compute one element from memory, shared parts counted as often as they are used.
    cost: u32,
    /// Reads of memory on the way.
    loads: u32,
    depth: u32,
    has_reduce: bool,
}

impl Costs {
    /// Learns of the expressions made since the last call.
    pub fn update(&mut self, exprs: &Exprs) {
        for i in self.facts.len()..exprs.len() {
            let t = T(i as u32);
            let mut fact = Fact::default();
            exprs.for_each_operand(t, |o| {
                let f = self.facts.get(o.0 as usize).copied().unwrap_or_default();
                fact.cost = fact.cost.saturating_add(f.cost);
                fact.loads = fact.loads.saturating_add(f.loads);
                fact.depth = fact.depth.max(f.depth);
                fact.has_reduce |= f.has_reduce;
            });
            fact.depth += 1;
            let own = match &exprs.get(t).kind {
                Kind::Op(op, _) => op_cost(*op),
                Kind::Cast(of) if exprs.ty(*of) == Ty::I64 => 4,
                Kind::Cast(_) | Kind::Round(..) => 1,
                Kind::Reduce { .. } => 4,
                Kind::Buffer { .. } => {
                    fact.loads = 1;
                    0
                }
                Kind::Float(_) | Kind::Int(_) | Kind::Iota(_) | Kind::View { .. } | Kind::Concat { .. } => 0,
            };
            fact.cost = if exprs.is_const(t) { 0 } else { fact.cost.saturating_add(own) };
            fact.has_reduce |= matches!(exprs.get(t).kind, Kind::Reduce { .. });
            self.facts.push(fact);
        }
    }

    fn fact(&self, t: T) -> Fact {
        self.facts.get(t.0 as usize).copied().unwrap_or_default()
    }

    pub fn cost(&self, t: T) -> u32 {
        self.fact(t).cost
    }

    pub fn loads(&self, t: T) -> u32 {
        self.fact(t).loads
    }

    /// The longest chain of expressions.
    pub fn depth(&self, t: T) -> u32 {
        self.fact(t).depth
    }

    pub fn has_reduce(&self, t: T) -> bool {
        self.fact(t).has_reduce
    }

    /// The expression is in memory now: reading it is all it costs.
    pub fn now_stored(&mut self, t: T) {
        if let Some(fact) = self.facts.get_mut(t.0 as usize) {
            *fact = Fact { cost: 0, loads: 1, depth: 1, has_reduce: false };
        }
    }
}

fn op_cost(op: ScalarOp) -> u32 {
    use ScalarOp::*;
    match op {
        Add | Sub | Mul | Neg | Abs | Minimum | Maximum | Relu | Fma | Floor | Ceil | Trunc | RoundEven | Copysign
        | Eq | Ne | Lt | Le | Gt | Ge | IsNan | And | Or | Xor | Not | Shl | Shr | Select => 1,
        Div | Sqrt | Rsqrt | Reciprocal => 4,
        IntDivTrunc | IntDivFloor | IntRemTrunc | Remainder | Fmod => 12,
        Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Tanh | Erf => 12,
        Pow | Sin | Cos | Tan | Asin | Acos | Atan | Atan2 | Sinh | Cosh | Asinh | Acosh | Atanh | Erfc | Lgamma
        | Digamma => 25,
    }
}
