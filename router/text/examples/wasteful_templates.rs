//! How long a template that does nothing but waste time keeps a thread, for a small chat and for the longest that a body
//! holds: `cargo run -p headrace-text --example wasteful_templates -- [CHATS] [WORD]` (the first so many chats, the
//! statements with the word). With a folder instead: what its templates need for the last chat.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example prints its figures and ends where something is wrong"
)]

use headrace_text::{ChatTemplate, RenderOptions, Tokenizer};
use serde_json::{Value, json};

/// What a body holds by default.
const BODY: usize = 2 << 20;

/// Statements that are cheap by their charge and dear by their time; each runs for ever.
const STATEMENTS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("print", "{{ i }}"),
    ("set", "{% set x = i %}"),
    ("add", "{% set x = i + j * 3 %}"),
    ("text", "{% set x = i ~ j %}"),
    ("float", "{% set x = (i / 7) | string %}"),
    ("power", "{% set x = 3 ** 60 %}"),
    ("round", "{% set x = (i / 7) | round(3) %}"),
    ("list", "{% set x = [1, 2, 3, 4, 5, 6, 7, 8] %}"),
    ("object", "{% set x = {'a': 1, 'b': 2, 'c': 3} %}"),
    ("namespace", "{% set x = namespace(a=1, b=2) %}"),
    ("range", "{% set x = range(3) %}"),
    ("macro", "{{ m0() }}"),
    (
        "macro with arguments",
        "{% set x = m2(1, 2, 3, a=4, b=5) %}",
    ),
    ("caller", "{% call m3() %}{% endcall %}"),
    ("define", "{% macro z() %}{% endmacro %}"),
    (
        "date",
        "{% set x = strftime_now('%A %B %d %Y %H:%M:%S %Z') %}",
    ),
    ("long date", "{% set x = strftime_now(dates) %}"),
    ("json", "{% set x = {'a': [1, 2.5, none, 'x']} | tojson %}"),
    ("format", "{% set x = '%s %d %5.2f' % ('a', i, 1.5) %}"),
    (
        "format method",
        "{% set x = '{} {:>8} {:5.2f}'.format('a', i, 1.5) %}",
    ),
    ("wide number", "{% set x = '%.300f' % 1e300 %}"),
    (
        "filters",
        "{% set x = 'Abc' | upper | lower | title | trim | length %}",
    ),
    ("title", "{% set x = words.title() %}"),
    ("split", "{% set x = words.split() %}"),
    ("split text", "{% set x = words.split('b') %}"),
    ("replace", "{% set x = words.replace('b', '') %}"),
    ("rare", "{% if 'zz' in words %}{% endif %}"),
    ("bad needle", "{% if needle in haystack %}{% endif %}"),
    ("bad count", "{% if haystack.count(needle) %}{% endif %}"),
    ("bad find", "{% if haystack.rfind(needle) %}{% endif %}"),
    (
        "strip",
        "{% set x = words.strip('abcdefghijklmnopqrstuvwxyz ') %}",
    ),
    ("upper", "{% set x = words | upper %}"),
    ("long upper", "{% set x = text | upper %}"),
    ("is lower", "{% if text is lower %}{% endif %}"),
    ("length", "{% if letters | length %}{% endif %}"),
    ("index", "{% if letters[-1] %}{% endif %}"),
    ("compare", "{% if text == other %}{% endif %}"),
    ("compare lists", "{% if numbers == numbers2 %}{% endif %}"),
    ("compare objects", "{% if objects == objects2 %}{% endif %}"),
    (
        "compare messages",
        "{% if messages == messages %}{% endif %}",
    ),
    ("in list", "{% if 1 in numbers %}{% endif %}"),
    ("sort", "{% set x = numbers | sort %}"),
    (
        "sort texts",
        "{% set x = texts | sort(case_sensitive=false) %}",
    ),
    ("sort floats", "{% set x = floats | sort %}"),
    (
        "sort messages",
        "{% set x = messages | sort(attribute='content') %}",
    ),
    ("unique", "{% set x = texts | unique | list %}"),
    ("groupby", "{% set x = objects3 | groupby('a') %}"),
    ("dictsort", "{% set x = object | dictsort %}"),
    ("items", "{% set x = object | items | list %}"),
    ("map", "{% set x = numbers | map('string') | list %}"),
    (
        "map attribute",
        "{% set x = messages | map(attribute='content') | list %}",
    ),
    ("select", "{% set x = numbers | select('odd') | list %}"),
    (
        "selectattr",
        "{% set x = messages | selectattr('role', 'equalto', 'user') | list %}",
    ),
    ("batch", "{% set x = numbers | batch(2) | list %}"),
    ("join", "{% set x = texts | join %}"),
    ("sum", "{% set x = numbers | sum %}"),
    ("slice", "{% set x = numbers[::-1] %}"),
    ("slice text", "{% set x = letters[::-1] %}"),
    ("tojson messages", "{% set x = messages | tojson %}"),
    ("print messages", "{% set x = messages | string %}"),
    (
        "loop over messages",
        "{% for a in messages %}{% if a.content == m %}{% endif %}{% endfor %}",
    ),
    ("loop over text", "{% for a in words %}{% endfor %}"),
    (
        "loop over items",
        "{% for k, v in object.items() %}{% endfor %}",
    ),
    (
        "recursive",
        "{% for x in [[[]]] recursive %}{{ loop(x) }}{% endfor %}",
    ),
    ("changed", "{% if loop.changed(words) %}{% endif %}"),
    (
        "capture",
        "{% set x %}{% filter upper %}a{% endfilter %}{% endset %}",
    ),
    ("with", "{% with a=1, b=2, c=3 %}{% endwith %}"),
    (
        "raise test",
        "{% if undefined_thing is defined %}{% endif %}",
    ),
    ("append lists", "{% set ns.x = ns.x + [i] %}"),
    ("append text", "{% set ns.y = ns.y ~ 'a' %}"),
    ("indent", "{% set x = lines | indent(2) %}"),
    ("splitlines", "{% set x = lines.splitlines() %}"),
    ("escape", "{% set x = '<&>' | e %}"),
    ("pprint", "{% set x = {'a': [1, 2]} | pprint %}"),
    ("parse number", "{% set x = '123456789.5' | float %}"),
    ("expandtabs", "{% set x = 'a\\tb'.expandtabs(8) %}"),
    ("cycle", "{% set x = loop.cycle(1, 2, 3) %}"),
];

const VALUES: &str = "{% macro m0() %}{% endmacro %}{% macro m2(x, y, z, a=1, b=2) %}{% endmacro %}\
    {% macro m3() %}{{ caller() }}{% endmacro %}{% set ns = namespace(x=[], y='') %}\
    {% set dates = '%c %A %B %Z %F %T ' * 14 %}{% set words = 'ab cd ' * 40 %}{% set lines = 'ab\\n' * 60 %}\
    {% set text = 'xY' * 1000000 %}{% set other = text ~ 'z' %}{% set letters = '\u{e9}' * 1000000 %}\
    {% set needle = ('a' * 1000) ~ 'b' ~ ('a' * 1000) %}{% set haystack = 'a' * 100000 %}\
    {% set numbers = range(100000, 0, -1) | list %}{% set numbers2 = range(100000, 0, -1) | list %}\
    {% set floats = numbers | map('float') | list %}{% set texts = numbers | map('string') | list %}\
    {% set objects = [{'a': 1}] * 30000 %}{% set objects2 = [{'a': 1}] * 30000 %}\
    {% set object = dict(a=1, b=2, c=3, d=4, e=5) %}\
    {% set objects3 = [{'a': 1}, {'a': 2}, {'a': 1}, {'a': 3}] * 10000 %}";

fn chats() -> [(&'static str, Vec<Value>); 4] {
    let message = |role: &str, size: usize| json!({"role": role, "content": "x".repeat(size)});
    let many = |count: usize, size: usize| {
        let roles = ["user", "assistant"].into_iter().cycle();
        roles.map(|role| message(role, size)).take(count).collect()
    };
    [
        ("small", many(1, 10)),
        ("one long message", many(1, BODY)),
        ("2,001 messages", many(2001, BODY / 2000 - 40)),
        ("50,001 messages", many(50_001, 1)),
    ]
}

/// CPU time of this thread (Linux).
fn seconds() -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: f64 = line.split(' ').next().unwrap().parse().unwrap();
    nanoseconds / 1e9
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next().unwrap_or_default();
    let word = args.next().unwrap_or_default();
    let json = std::fs::read("router/text/tests/golden/tiny_byte_fallback.json").unwrap();
    let tokenizer = Tokenizer::from_bytes(&json).unwrap();
    if let Ok(folder) = std::fs::read_dir(&first) {
        for path in folder.map(|entry| entry.unwrap().path()) {
            let text = std::fs::read_to_string(&path).unwrap();
            if let Ok(template) = ChatTemplate::compile(&text, &tokenizer) {
                print!("{:50}", path.file_name().unwrap().display());
                run(&template, &chats()[2..]);
            }
        }
        return;
    }
    let chats = &chats()[..first.parse().unwrap_or(4)];
    for (name, statement) in STATEMENTS.iter().filter(|(name, _)| name.contains(&word)) {
        let text = format!(
            "{VALUES}{{% for m in [messages[0].content] %}}{{% for i in range(99999) %}}{{% for j in range(99999) %}}\
             {statement}{{% endfor %}}{{% endfor %}}{{% endfor %}}"
        );
        print!("{name:24}");
        run(&ChatTemplate::compile(&text, &tokenizer).unwrap(), chats);
    }
}

fn run(template: &ChatTemplate, chats: &[(&'static str, Vec<Value>)]) {
    for (_, messages) in chats {
        let begin = seconds();
        let result = template.render(messages, &RenderOptions::default());
        let error = result.map_or_else(|error| error.to_string(), |_| "ok".into());
        let why = if error.contains("too long") {
            "time"
        } else if error.contains("bytes") {
            "size"
        } else {
            error.get(..60).unwrap_or(&error)
        };
        print!(" {:8.3} {why}", seconds() - begin);
    }
    println!();
}
