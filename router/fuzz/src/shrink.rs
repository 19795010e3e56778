//! A failing input made shorter for as long as it still fails.

/// Tries at most: an input that fails slowly must end too.
const TRIES: usize = 3000;

/// The shortest input found for which `fails` still holds.
pub(crate) fn shrink(input: &[u8], mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut tries = 0;
    let mut part = best.len().div_ceil(2);
    while part > 0 {
        let mut start = 0;
        let mut any = false;
        while start < best.len() && tries < TRIES {
            let end = (start + part).min(best.len());
            let mut shorter = best.clone();
            shorter.drain(start..end);
            tries += 1;
            if fails(&shorter) {
                best = shorter;
                any = true;
            } else {
                start = end;
            }
        }
        if !any {
            part /= 2;
        }
        if tries >= TRIES {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_it_fail_is_left() {
        let input: Vec<u8> = (0..200).collect();
        let both = |input: &[u8]| input.contains(&17) && input.contains(&150);
        assert_eq!(shrink(&input, both), [17, 150]);
    }
}
