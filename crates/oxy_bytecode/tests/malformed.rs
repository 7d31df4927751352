//! Malformed code objects give errors: no panic, no endless loop, no invalid target in a decoded unit.

use std::{fs, path::Path};

use oxy_bytecode::{
    Analysis, AnalysisError, CodeUnit, DecodeError, PythonVersion, RawCode, WordOffset, dump::DumpReader,
};

fn raw(code: &[u8]) -> RawCode<'_> {
    RawCode {
        code,
        exception_table: &[],
        line_table: &[],
        localsplus_kinds: &[0x20],
        argcount: 0,
        posonlyargcount: 0,
        kwonlyargcount: 0,
        flags: 0,
        stacksize: 4,
        firstlineno: 1,
    }
}

/// The opcode byte of a name in a version.
fn byte(version: PythonVersion, name: &str) -> u8 {
    (0..=255).find(|&b| (version.table().opcode)(b).is_some_and(|(n, _)| n == name)).unwrap()
}

fn error(version: PythonVersion, raw: &RawCode<'_>) -> DecodeError {
    CodeUnit::decode(version, raw).unwrap_err()
}

#[test]
fn decoding_rejects_what_no_compiler_makes() {
    for &v in PythonVersion::ALL {
        let [ret, load, jump, nop, extended] =
            ["RETURN_VALUE", "LOAD_FAST", "JUMP_FORWARD", "NOP", "LOAD_CONST"].map(|name| byte(v, name));
        let w = WordOffset;
        assert_eq!(error(v, &raw(&[nop])), DecodeError::Truncated { at: w(0) });
        assert_eq!(error(v, &raw(&[0, 0])), DecodeError::UnknownOpcode { at: w(0), opcode: 0 });
        assert!(matches!(error(v, &raw(&[load, 1, ret, 0])), DecodeError::BadVariable { .. }));
        assert_eq!(error(v, &raw(&[jump, 7, ret, 0])), DecodeError::BadTarget { at: w(0), target: w(8) });
        let e = v.table().extended_arg;
        assert!(matches!(error(v, &raw(&[e, 1, e, 1, e, 1, e, 1, extended, 0])), DecodeError::BadArgument { .. }));
        assert!(matches!(error(v, &raw(&[ret, 0, e, 1])), DecodeError::Truncated { .. }));
        // A jump to between an argument extension and its opcode.
        assert!(matches!(error(v, &raw(&[jump, 1, e, 0, ret, 0])), DecodeError::BadTarget { .. }));
        // Caches cut off.
        assert!(matches!(error(v, &raw(&[byte(v, "LOAD_ATTR"), 0])), DecodeError::Truncated { .. }));
        let code = [nop, 0, ret, 0];
        let table = |exception_table| RawCode { exception_table, ..raw(&code) };
        // Cut off; handler outside; regions out of order.
        assert!(matches!(error(v, &table(&[0x80, 1])), DecodeError::ExceptionTable { .. }));
        assert!(matches!(error(v, &table(&[0x80, 1, 9, 0])), DecodeError::BadTarget { .. }));
        assert!(matches!(error(v, &table(&[0x81, 1, 0, 0, 0x80, 1, 0, 0])), DecodeError::ExceptionTable { .. }));
        let lines = |line_table| RawCode { line_table, ..raw(&code) };
        assert!(matches!(error(v, &lines(&[0x00])), DecodeError::LineTable { .. }));
        assert!(matches!(error(v, &lines(&[0xf0])), DecodeError::LineTable { .. }));
    }
}

#[test]
fn the_largest_arguments_are_no_overflow() {
    for &v in PythonVersion::ALL {
        for opcode in 0..=255 {
            let Some((_, caches)) = (v.table().opcode)(opcode) else {
                continue;
            };
            let e = v.table().extended_arg;
            let mut code = vec![e, 255, e, 255, e, 255, opcode, 255];
            code.extend([0, 0].repeat(caches as usize));
            follow(v, &raw(&code));
        }
    }
}

#[test]
fn keyword_names_must_belong_to_a_call() {
    for &v in PythonVersion::ALL {
        if (0..=255).any(|b| (v.table().opcode)(b).is_some_and(|(name, _)| name == "KW_NAMES")) {
            let names = byte(v, "KW_NAMES");
            assert!(matches!(error(v, &raw(&[names, 0])), DecodeError::DanglingPrefix { .. }));
            assert!(matches!(error(v, &raw(&[names, 0, byte(v, "NOP"), 0])), DecodeError::DanglingPrefix { .. }));
        }
    }
}

#[test]
fn analysis_rejects_a_broken_stack() {
    for &v in PythonVersion::ALL {
        let [ret, load, jump, pop] = ["RETURN_VALUE", "LOAD_FAST", "JUMP_BACKWARD", "POP_TOP"].map(|n| byte(v, n));
        let analyse = |code: &[u8]| Analysis::of(&CodeUnit::decode(v, &raw(code)).unwrap()).unwrap_err();
        assert!(matches!(analyse(&[]), AnalysisError::RunsOffEnd { .. }));
        assert!(matches!(analyse(&[load, 0]), AnalysisError::RunsOffEnd { .. }));
        assert!(matches!(analyse(&[pop, 0, ret, 0]), AnalysisError::StackUnderflow { .. }));
        assert!(matches!(analyse(&[load, 0].repeat(6)), AnalysisError::StackOverflow { .. }));
        // A loop that pushes on every pass: back to the start from after the jump and its caches.
        let caches = (v.table().opcode)(jump).unwrap().1 as u8;
        let mut code = vec![load, 0, jump, 2 + caches];
        code.extend([0, 0].repeat(caches.into()));
        assert!(matches!(analyse(&code), AnalysisError::InconsistentDepth { .. }));
    }
}

/// Every one-byte change of the fixtures either fails or gives a unit whose ids can be followed.
#[test]
fn damaged_fixtures_never_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut seed = 1u32;
    for &version in PythonVersion::ALL {
        for name in ["loops", "exceptions", "generators"] {
            let dump = fs::read_to_string(root.join(version.to_string()).join(format!("{name}.code"))).unwrap();
            let mut reader = DumpReader::default();
            for dumped in dump.lines().filter_map(|line| reader.line(line).unwrap()) {
                let whole = dumped.raw();
                for part in 0..3 {
                    let bytes = [whole.code, whole.exception_table, whole.line_table][part];
                    for index in 0..bytes.len() {
                        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                        let mut damaged = bytes.to_vec();
                        damaged[index] = (seed >> 24) as u8;
                        let mut raw = whole;
                        *[&mut raw.code, &mut raw.exception_table, &mut raw.line_table][part] = &damaged;
                        follow(version, &raw);
                    }
                }
            }
        }
    }
}

fn follow(version: PythonVersion, raw: &RawCode<'_>) {
    let Ok(unit) = CodeUnit::decode(version, raw) else {
        return;
    };
    for (id, placed) in unit.iter() {
        assert!(placed.instr.target().is_none_or(|target| unit.get(target).is_some()));
        assert!(unit.region_of(id).is_none_or(|region| unit.get(region.target).is_some()));
    }
    let _ = Analysis::of(&unit);
    let _ = oxy_bytecode::text::Listing::new(&unit).to_string();
}
