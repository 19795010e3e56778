//! What the machine has: GPUs that this process may see, and cores.

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

/// Cores that affinity and the cgroup's quota leave to this process.
pub(crate) fn usable_cores() -> u32 {
    std::thread::available_parallelism()
        .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

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
