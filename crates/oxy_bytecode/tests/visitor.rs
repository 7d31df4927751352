//! The visitor derived from the instruction table: every method is called with its own operands.

use oxy_bytecode::{Instr, Var};

oxy_bytecode::define_visitor! {
    /// Spells out what it sees.
    trait Spell(prefix: &str) -> String;
    fn dispatch;
}

struct Speller;

macro_rules! implement_spell {
    ([] $($(#[$doc:meta])* $method:ident = $variant:ident { $($operand:ident : $ty:ident),* }, $stack:literal,
        $pops:expr => $pushes:expr $(, taken $tpops:expr => $tpushes:expr)?, [$($flag:ident),*];)*) => {
        impl Spell for Speller {
            $(fn $method(&mut self $(, $operand: oxy_bytecode::operand::$ty)*, prefix: &str) -> String {
                format!("{prefix}{}", Instr::$variant { $($operand),* })
            })*
        }
    };
}

oxy_bytecode::for_each_instr!(implement_spell![]);

#[test]
fn dispatch_passes_operands_and_arguments() {
    let instr = Instr::LoadFast { var: Var(3), checked: true };
    assert_eq!(dispatch(&mut Speller, &instr, "> "), "> load_fast %3 checked");
    assert_eq!(dispatch(&mut Speller, &Instr::GetLen {}, ""), "get_len");
}
