//! Text form and verifier: the kernels in `kernels/` print as they are written, and broken ones are refused.

use oxy_loops::{parse, verify};
use std::{fs, path::Path};

#[test]
fn kernels_print_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let kernel = parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        verify(&kernel).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let code: String = text.lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect();
        assert_eq!(kernel.to_string(), code, "{}", path.display());
        assert_eq!(path.file_stem().unwrap().to_str(), Some(kernel.name.as_str()));
        count += 1;
    }
    assert!(count > 10);
}

const SUM: &str = "
kernel sum
  p0 f32
  p1 f32 written
  d0 parallel 4
  d1 reduce 8
  s0 f32
  vector d1
  split outer
loop
  v0 f32 = load p0[8*d0 + d1]
  s0 <- sum v0
point
  v0 f32 = slot s0
  p1[d0] <- v0
end
";

/// The verifier's complaint about `SUM` with `from` replaced by `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(SUM.contains(from));
    let kernel = parse(&SUM.replacen(from, to, 1)).unwrap();
    verify(&kernel).unwrap_err().to_string()
}

#[test]
fn the_verifier_accepts_the_original() {
    verify(&parse(SUM).unwrap()).unwrap();
}

#[test]
fn broken_kernels_are_refused() {
    for (from, to, wanted) in [
        ("p1 f32 written", "p1 f32", "phase 1: store to p1, which isn't written"),
        ("p0 f32", "p0 c64", "kernel: p0 has dtype c64"),
        ("sum\n", "a b\n", "kernel: bad name \"a b\""),
        ("vector d1", "vector d2", "kernel: no vector dimension d2"),
        ("split outer", "split vector", "kernel: split along a dimension that isn't parallel"),
        ("v0 f32 = load", "v0 f64 = load", "phase 0, v0: type f64 where f32 is needed"),
        ("8*d0 + d1", "8*d0 + d1 + v0", "phase 0, v0: v0 is not defined yet"),
        ("s0 <- sum", "s0 <- any", "phase 0: any of f32"),
        ("loop", "point", "phase 0, v0: a point depends on the reduce dimension d1"),
        ("= slot s0", "= slot s1", "phase 1, v0: no slot s1"),
        ("s0 <- sum v0\n", "", "phase 1, v0: s0 is read before it is set"),
        ("p1[d0] <- v0", "p1[d0] <- v7", "phase 1: v7 is not defined yet"),
        ("p1[d0] <- v0", "s0 <- sum v0", "phase 1: reduction at a point"),
        ("s0 <- sum v0", "s0 = v0", "phase 0: slot set in a loop"),
        ("s0 <- sum v0", "s0 <- sum v0\n  s0 <- max v0", "phase 0: s0 is reduced twice"),
        ("v0 f32 = load p0[8*d0 + d1]", "v0 i32 = int 1", "phase 0: type i32 where f32 is needed"),
        ("  s0 <- sum", "  v1 f32 = and v0 v0\n  s0 <- sum", "phase 0, v1: and of f32"),
        ("  s0 <- sum", "  v1 f32 = add v0\n  s0 <- sum", "phase 0, v1: add takes 2 operands"),
        ("  s0 <- sum", "  v1 f32 = round i8 v0\n  s0 <- sum", "phase 0, v1: f32 doesn't round to i8"),
        ("  s0 <- sum", "  v1 f32 = load p0[0] if v0\n  s0 <- sum", "phase 0, v1: type f32 where bool is needed"),
    ] {
        assert_eq!(complaint(from, to), wanted);
    }
}

#[test]
fn syntax_errors_carry_a_line() {
    let check = |text: &str, wanted: &str| assert_eq!(parse(text).unwrap_err().to_string(), wanted);
    check("kernel a\n  p1 f32\nend", "line 2: p1 where p0 is next");
    check("kernel a\n  p0 f33\nend", "line 2: unknown dtype \"f33\"");
    check("kernel a\npoint\n  v0 f32 = frob v0\nend", "line 3: unknown operator \"frob\"");
    check("kernel a\npoint", "line 2: no `end`");
    check("", "line 1: 0 kernels where one is needed");
}
