//! The machine that code is made for: CPU name, features, vector width, and the key that artifacts are cached under.

use crate::{error::CodegenError, llvm};

/// Changes whenever the same kernel may compile to different code.
pub const CODEGEN_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTarget {
    pub triple: String,
    pub cpu: String,
    /// LLVM feature string ("+avx2,…"); empty when the CPU name says it all.
    pub features: String,
    /// Bits of the widest vector registers worth using.
    pub vector_bits: u32,
    /// Vector registers of that width.
    pub vector_registers: u32,
    /// Fused multiply-add in hardware. Without it vector math calls libm lane by lane.
    pub has_fma: bool,
    /// f16 ↔ f32 conversion in hardware.
    pub has_f16c: bool,
    /// Masked loads and stores of 8 and 16 bit lanes (AVX-512BW).
    pub has_narrow_masks: bool,
    /// Masked loads and stores of 32 and 64 bit lanes (AVX and later).
    pub has_masks: bool,
}

/// x86 instruction-set levels: (level, vector bits, registers, fma and f16c, masks, narrow masks).
const LEVELS: &[(&str, u32, u32, bool, bool, bool)] = &[
    ("sse2", 128, 16, false, false, false),
    ("avx2", 256, 16, true, true, false),
    ("avx512", 512, 32, true, true, true),
];

/// CPU names for `with_cpu` and their level.
const CPUS: &[(&str, &str)] = &[
    ("haswell", "avx2"),
    ("sapphirerapids", "avx512"),
    ("skylake-avx512", "avx512"),
    ("x86-64", "sse2"),
    ("x86-64-v2", "sse2"),
    ("x86-64-v3", "avx2"),
    ("x86-64-v4", "avx512"),
    ("znver3", "avx2"),
    ("znver4", "avx512"),
];

impl HostTarget {
    /// This machine.
    pub fn detect() -> HostTarget {
        let (triple, cpu, features) = llvm::host();
        if !triple.starts_with("x86_64") {
            return HostTarget {
                triple,
                cpu,
                features,
                vector_bits: 128,
                vector_registers: 32,
                has_fma: true,
                has_f16c: true,
                has_narrow_masks: false,
                has_masks: false,
            };
        }
        let has = |name: &str| features.split(',').any(|f| f.strip_prefix('+') == Some(name));
        let avx2 = ["avx2", "fma", "f16c"].iter().all(|f| has(f));
        let avx512 = avx2 && ["avx512f", "avx512bw", "avx512dq", "avx512vl"].iter().all(|f| has(f));
        let level = if avx512 {
            "avx512"
        } else if avx2 {
            "avx2"
        } else {
            "sse2"
        };
        let mut target = HostTarget::at_level(level, triple, cpu);
        target.features = features;
        target
    }

    /// A named CPU instead of the detected one. The code runs here only if this machine has its instructions.
    pub fn with_cpu(cpu: &str) -> Result<HostTarget, CodegenError> {
        let row = CPUS.iter().find(|row| row.0 == cpu);
        let (_, level) = row.ok_or_else(|| CodegenError::UnknownCpu(cpu.to_string()))?;
        Ok(HostTarget::at_level(level, llvm::host().0, cpu.to_string()))
    }

    fn at_level(level: &str, triple: String, cpu: String) -> HostTarget {
        let row = LEVELS.iter().find(|row| row.0 == level).unwrap_or(&LEVELS[0]);
        let (_, vector_bits, vector_registers, fma, has_masks, has_narrow_masks) = *row;
        HostTarget {
            triple,
            cpu,
            features: String::new(),
            vector_bits,
            vector_registers,
            has_fma: fma,
            has_f16c: fma,
            has_narrow_masks,
            has_masks,
        }
    }

    /// Everything that decides what code a kernel compiles to, for the artifact cache.
    pub fn key(&self) -> String {
        let HostTarget { triple, cpu, features, .. } = self;
        format!("codegen {CODEGEN_VERSION} llvm {} {triple} {cpu} {features}", llvm::version())
    }
}
