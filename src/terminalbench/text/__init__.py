"""How values are written, once for every surface: terminal, live view, report, dashboard, messages.

| kind | spelling |
|---|---|
| cost | `$0.50`, `$1,234.50`; below ten cents two figures: `$0.012`; a sum with unknown parts: `$0.50 + 3 unknown` |
| share | `12.3 %`; neither all nor nothing by rounding: `> 99.9 %`, `< 0.1 %`; an interval: `4.1 to 22.3 %` |
| difference of shares | `+3.1 pt`, `-6.0 pt`; an interval: `-6.0 to +12.2 pt` |
| duration | `7.5 s`, `75 s`, `12.5 min`, `2.5 h`; a time of day is `2026-01-31 14:05`, in UTC |
| p value | `p = 0.48`, `p = 0.012`, `p < 0.001` |
| count | `1,234`; with its noun `1 task`, `1,234 tasks`; tokens from ten thousand on `12.3k`, `4.5M` |
| outcome | its word `timed out`, its mark `T`, its colour |
| unknown | `unknown`; where a value does not apply, as the pass rate of nothing measured, `-` |

The minus is a hyphen and everything is ASCII: it can be searched for, copied and shown by any terminal.
Files for programs (`--json`, CSV) hold the numbers themselves.
"""
