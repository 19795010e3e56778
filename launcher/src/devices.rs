//! What the machine has: GPUs that this process may see, and cores.

use std::path::Path;

/// GPUs that this process may use, by the variables that hide them and the device files.
pub(crate) fn visible_gpus() -> u32 {
    let devices = std::fs::read_dir("/dev").map_or(0, |entries| {
        let is_gpu = |name: &str| {
            name.strip_prefix("nvidia").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_gpu))
            .count()
    });
    let devices = u32::try_from(devices).unwrap_or(0);
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .fold(devices, |visible, list| visible.min(listed(&list, devices)))
}

/// Devices in a list such as `0,1`, `GPU-uuid`, `all`, `void`, ` ` or `-1`.
fn listed(list: &str, devices: u32) -> u32 {
    match list.trim() {
        "all" => devices,
        "" | "-1" | "void" | "none" | "NoDevFiles" => 0,
        list => u32::try_from(list.split(',').count()).unwrap_or(devices),
    }
}

/// Whether `--device cuda` may work at all: a GPU of this process, or a device of a platform that has other names.
pub(crate) fn may_have_cuda() -> bool {
    let other_names = ["/dev/dxg", "/dev/nvmap"];
    visible_gpus() > 0 || other_names.iter().any(|path| Path::new(path).exists())
}

/// Bytes that processes of this cgroup can ever have: the machine's memory, or less by a limit.
pub(crate) fn memory_bytes() -> Option<u64> {
    memory_below(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

fn memory_below(proc: &Path, cgroup: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    let groups = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let (base, file) = if controllers.is_empty() {
            (cgroup.to_owned(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (cgroup.join("memory"), "memory.limit_in_bytes")
        } else {
            return Vec::new();
        };
        // Every group above this process may have one; inside a container the path may be of the host's view.
        let parts = path.split('/').filter(|part| !matches!(*part, "" | ".."));
        let mut folder = base;
        let mut files = vec![folder.join(file)];
        for part in parts {
            folder.push(part);
            files.push(folder.join(file));
        }
        files
    });
    // The word "max", or no such file, is no limit.
    let limits = limits.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    Some(limits.fold(kibibytes.saturating_mul(1024), u64::min))
}

/// Cores that affinity and the cgroup's quota leave to this process.
pub(crate) fn usable_cores() -> u32 {
    std::thread::available_parallelism()
        .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_of_the_cgroups_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("cgroup"));
        std::fs::create_dir_all(proc.join("self")).expect("made");
        let write = |path: std::path::PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        assert_eq!(memory_below(&proc, &cgroup), None);
        write(
            proc.join("meminfo"),
            "MemFree: 1 kB\nMemTotal:       1000 kB\n",
        );
        assert_eq!(memory_below(&proc, &cgroup), Some(1_024_000));
        write(proc.join("self/cgroup"), "0::/a/b\n");
        write(cgroup.join("a/memory.max"), "500000\n");
        write(cgroup.join("a/b/memory.max"), "max\n");
        assert_eq!(memory_below(&proc, &cgroup), Some(500_000));
        write(proc.join("self/cgroup"), "3:pids:/x\n4:cpu,memory:/y\n");
        write(cgroup.join("memory/y/memory.limit_in_bytes"), "400000\n");
        assert_eq!(memory_below(&proc, &cgroup), Some(400_000));
    }

    #[test]
    fn lists_of_devices() {
        for (list, expected) in [
            ("0,1", 2),
            ("all", 4),
            ("", 0),
            ("-1", 0),
            ("void", 0),
            ("GPU-1234", 1),
        ] {
            assert_eq!(listed(list, 4), expected, "{list}");
        }
    }
}
