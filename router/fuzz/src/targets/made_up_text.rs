//! Texts that tokenizers, templates and matchers find hard.

use crate::random::Random;

/// Whole and cut special tokens, white space, marks of vocabularies, characters of one to four bytes, combining ones.
pub(super) const WORDS: [&str; 44] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|im_",
    "start|>",
    "<|eos|>",
    "<|bos|>",
    "</s>",
    "<s>",
    "<unk>",
    "<0x41>",
    "<0xE4>",
    "<|",
    "|>",
    "<",
    ">",
    "\u{2581}",
    "\u{2581}\u{2581}",
    "\u{120}",
    "\u{10a}",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u{0}",
    "\u{7f}",
    "\u{a0}",
    "\u{200b}",
    "\u{feff}",
    "\u{fffd}",
    "\u{e000}",
    "\u{f8ff}",
    "e\u{301}",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "\u{1f600}",
    "日本",
    "\u{5d0}\u{5d1}",
    "don't",
    "1234567890",
    "Hello",
    " and",
    "a",
    "HEADRACE_CONTINUE_FINAL_MESSAGE ",
    "{{ messages }}{% for %}",
];

/// A text of up to some dozen words, now and then one of them many times.
pub(super) fn text(random: &mut Random) -> String {
    let mut out = String::new();
    for _ in 0..random.below(12) {
        let times = if random.percent(3) {
            random.below(300)
        } else {
            1
        };
        if random.percent(80) {
            out.push_str(&random.pick(&WORDS).repeat(times));
        } else if let Some(any) =
            char::from_u32(u32::try_from(random.below(0x11_0000)).unwrap_or(0))
        {
            out.extend(std::iter::repeat_n(any, times));
        }
    }
    out
}
