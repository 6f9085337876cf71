# SPDX-License-Identifier: MIT
"""The cases of make_template_goldens.py: small templates, and conversations for whole ones."""

VARIABLES = {
    "n": 7, "f": 2.5, "t": True, "no": None, "s": "Hello World", "e": "", "u": "Größe İstanbul ΣΑΣ 日本語 😀",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "C": 3}, "el": [], "ed": {},
    "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo", "n": 1},
          {"role": "user", "content": None, "n": 3}],
    "nest": {"x": [1, {"y": "z"}], "items": 5}, "q": "it's \"quoted\" <b>&\n\ttab\\", "big": 12345678901234567890123,
    "i64": 9223372036854775807, "fl": [0.1, 1e16, 1e22, 1.5e-5, 100.0, 123456789.123, 1e-4, -0.0, 5e-324],
}

# Each is rendered as {{ ... }} with VARIABLES.
EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
7 // 2
-7 // 2
7 % 3
-7 % 3
7.5 // 2
-7.5 % 2
7 / 2
6 / 2
1 - 1
+5
--5
- n
1_000 + 0x1F + 0o17 + 0b101
1.5e3
2e-3
1 == 1.0
True == 1
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1
1 != 2
1 in [1, 2]
4 not in l
'lo' in s
'x' in s
'a' in d
'z' not in d
not true
not false and true
true and false or true
none or 'x'
0 or ''
'' and 1
1 and 2
not 1 == 2
not n in l
'a' ~ 1 ~ none ~ true ~ 1.0
'a' ~ 'b' + 'c'
1 ~ 2 * 3
1 if true else 2
1 if false else 2
1 if false
'a' if n > 5 else 'b' if n > 3 else 'c'
(1 if false else 2) + 3
s[0]
s[-1]
s[20]
s[1:4]
s[:3]
s[3:]
s[::-1]
s[::2]
s[-3:]
s[:-3]
s[5:1:-1]
s[100:]
s[-100:2]
u[2:5]
u[::-1]
l[::-1]
l[-2:]
l[1:]
l[0:2]
l[5]
l[-1]
l[:-1][0]
(1, 2, 3)[1:]
(1,)
()
(1, 2)
[1, 'a', none, true, 2.0]
{'a': 1, 'b': [1, 2]}
{}
[]
[[1, 2], (3,), {}]
{'a': {'b': {'c': 1}}}.a.b.c
{1: 'x', none: 'y', true: 'z'}
d
d.a
d['b']
d.zz
d.zz is defined
d['zz'] is defined
nest.x[1].y
nest['x'][1]['y']
nest.items
nest['items']
nest.x.0
nest.x.1.y
m[0].role
m[0]['content']
m[-1].content
m[5] is defined
m.role is defined
unknown
unknown is defined
unknown is undefined
unknown | default('d')
unknown.attr
unknown['x']
unknown + 1
unknown ~ 'x'
unknown == unknown
unknown | length
unknown | list
unknown | upper
unknown | trim
unknown()
'x' in unknown
unknown in [1]
unknown is none
unknown is string
unknown is iterable
unknown is mapping
unknown is sequence
unknown is callable
unknown | tojson
unknown | int
unknown | join(',')
unknown < 1
not unknown
-unknown
no
no.x
no.x.y
no | default('d')
no | default('d', true)
e | default('d', true)
e | default('d', boolean=true)
no | length
no | upper
no | string
no | trim
no + 1
none is none
no is defined
'a' 'b' "c"
'a\nb\tc\\d\'e\"f'
'\x41\u00e9\U0001F600\101'
'\q\é\0'
"it's"
'ab' * 3
3 * 'ab'
[1] * 3
'ab' * -1
[1] + [2]
(1,) + (2,)
[1] + (2,)
'a' + 1
1 + 'a'
'a' + none
1 / 0
1 % 0
true + true
true * 5
'%s is %d' % ('a', 5)
'%s' % 'x'
'%05.2f|%-5s|%5s|%+d|%x|%X|%o|%%|%c|%r' % (3.14159, 'a', 'b', 5, 255, 255, 8, 'z', 'q')
'%(a)s' % {'a': 1}
'%s %s' % 'x'
'%d' % 'x'
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{x}-{y}'.format(x=1, y=2)
'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159)
'{{}}'.format(1)
'%s'|format(5)
'%s-%s'|format('a', 'b')
1 is integer
1.0 is integer
1 is float
1.0 is float
true is integer
true is number
1 is number
'1' is number
true is boolean
1 is boolean
true is true
1 is true
false is false
0 is false
'a' is string
1 is string
d is mapping
l is mapping
l is sequence
d is sequence
s is sequence
1 is sequence
l is iterable
d is iterable
s is iterable
1 is iterable
1 is odd
2 is even
3 is odd
4 is divisibleby 2
4 is divisibleby(3)
1 is eq 1
1 is equalto(2)
1 is ne 2
1 is lt 2
1 is gt 2
1 is le 1
1 is ge 2
1 is in [1, 2]
1 is in([2])
1 is not in [1]
'abc' is lower
'ABC' is upper
'Abc' is upper
1 is sameas 1
true is sameas true
range is callable
s is callable
'upper' is filter
'nope' is filter
'odd' is test
x is defined and y
s is defined and s is string
not s is string
s is not string
1 is not odd
no is none and no is not defined
s is string and l is sequence or false
unknown is defined == false
s|upper
s|lower
u|upper
u|lower
u|title
u|capitalize
u.title()
u.swapcase()
'straße ŉ ǰ ﬁ'|upper
s|capitalize
'hello-wORLD foo_bar (baz) [x'|title
"they're bill's".title()
s|length
u|length
d|length
l|count
m|length
5|length
'  x '|trim
'xxhixx'|trim('x')
s|replace('l', 'L')
s|replace('l', 'L', 1)
'aaa'|replace('a', 'b', 2)
'abc'|replace('', '-')
'\u00a0\u2003x\u3000\x1c'|trim
l|first
l|last
el|first
el|last
s|first
s|last
d|first
l|sort
ls|sort
ls|sort(case_sensitive=true)
l|sort(reverse=true)
m|sort(attribute='n')|map(attribute='n')|list
m|sort(attribute='role,n')|map(attribute='n')|list
ls|unique|list
[1, 1, 2, 1]|unique|list
ls|unique(case_sensitive=true)|list
m|unique(attribute='role')|map(attribute='n')|list
l|sum
m|sum(attribute='n')
[1.5, 2]|sum
l|sum(start=10)
l|min
l|max
ls|min
ls|max
el|min
m|max(attribute='n')
l|reverse|list
s|reverse
d|reverse|list
l|join
l|join(', ')
m|join('-', attribute='role')
[1, none, true, 'x']|join('/')
m|map(attribute='role')|join(',')
m|map(attribute='zz')|list
m|map(attribute='zz', default='q')|list
ls|map('upper')|list
ls|map('replace', 'a', 'z')|list
ls|map('length')|sum
m|selectattr('role', 'equalto', 'user')|list|length
m|selectattr('role', '==', 'user')|map(attribute='n')|list
m|selectattr('content')|list|length
m|selectattr('content', 'none')|list|length
m|rejectattr('role', 'eq', 'user')|map(attribute='content')|first
m|rejectattr('content')|list|length
m|selectattr('n', 'gt', 1)|map(attribute='n')|list
m|selectattr('role', 'in', ['user'])|list|length
m|selectattr('zz', 'defined')|list
m|selectattr('zz', 'undefined')|list|length
l|select('odd')|list
l|reject('odd')|list
l|select('gt', 1)|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
l|select('divisibleby', 3)|list
m|groupby('role')|length
m|groupby('role')
l|batch(2)|list
l|batch(2, 'x')|list
l|slice(2)|list
l|slice(2, 'x')|list
[1, 2, 3, 4]|slice(2, 'x')|list
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
d|dictsort(reverse=true)
d|dictsort(false, 'value', true)
d|items|list
unknown|items|list
l|items
d.items()
d.keys()
d.values()
d.items()|list
d.keys()|list
d.values()|list|sort
d|list
s|list
d.get('a')
d.get('zz')
d.get('zz', 5)
d.get('zz') is none
d.copy() == d
d.items()|length
'b' in d.keys()
d == {'a': 2, 'b': 1, 'C': 3}
l == [3, 1, 2]
l == (3, 1, 2)
[1, 2] < [1, 3]
(1, 'a') < (1, 'b')
'a' < 'b'
'a' < 1
none < 1
5|string + 'x'
5|int
'5'|int
' 12 '|int
'1_0'|int
'x'|int
'x'|int(3)
'x'|int(default=4)
'0x1A'|int(base=16)
'ff'|int(0, 16)
'0b11'|int(0, 2)
'3.7'|int
3.7|int
-3.7|int
none|int
true|int
'1e3'|int
'5'|float
'x'|float
'x'|float(1.5)
' 1.25e2 '|float
'.5'|float
'inf'|float
none|float
3|float
2.5|round
3.5|round
2.675|round(2)
2.1|round(1, 'ceil')
2.19|round(1, 'floor')
7|round
-0.5|round(0, 'ceil')
-0.0|round(0, 'floor')
7|round(-1)
5|round(-1)
-15|round(-1)
-1|round(-1)
24|round(-1)
24|round(-2)
24.5|round(-1)
24.5|round(-400)
9223372036854775804|round(-1)
42.55|round(1)
-5|abs
-5.5|abs
0.1 + 0.2
fl
fl[1]
1e100
1.0
100.0 * 3
3.0 * 2
1/3
10 / 5
2 ** 0.5
i64
big
big|tojson
big|string|length
s|wordcount
'a b\nc-d'|wordcount
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, blank=true)
'a\nb'|indent('> ')
'a\nb'|indent(width=1, first=True)
'a\r\nb\x0bc'|indent
e|indent
s|center(21)
'ab'|center(5)
s|truncate(5)
s|truncate(5, true)
s|truncate(8, false, '', 0)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(9)
s|escape
q|escape
q|e
'<'|safe
('<'|safe) + '<'
('<'|safe) ~ '<'
'<'|e|e
'<'|e|forceescape
['<'|safe]
'a b/c?d=é'|urlencode
s.upper()
s.lower()
s.title()
s.split()
s.split(' ')
s.split('o')
s.split('o', 1)
s.split('zz')
' a  b '.split()
' a  b '.split(' ')
' a b c '.split(None, 1)
'a,b,c'.split(',', maxsplit=1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',')
' a b c '.rsplit(None, 1)
' a b c '.rsplit()
'a</think>b</think>c'.split('</think>')[-1]
'a</think>b</think>c'.split('</think>')[0].split('<think>')[-1]
'a\nb\r\nc\x0bd\u2028e'.splitlines()
'a\nb\n'.splitlines(true)
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'  x '.strip()
'  x '.lstrip()
'  x '.rstrip()
'\n\nx\n'.strip('\n')
'abcba'.strip('ab')
'xyz'.lstrip('yx')
s.startswith('He')
s.startswith(('x', 'H'))
s.endswith('ld')
s.startswith('W', 6)
s.startswith('x')
s.replace('o', '0')
s.replace('o', '0', 1)
s.find('o')
s.find('zz')
s.find('', 3, 1)
s.rfind('', -1, 1)
s.rindex('', -1, 1)
s.find('', 3, 3)
s.rfind('', 11)
s.count('', 4, 2)
s.startswith('', 4, -9)
s.endswith('', 0, -99)
s.startswith(true, 5, 2)
s.find('o', 5)
s.rfind('o')
s.index('W')
s.index('zz')
s.count('l')
s.count('')
u.find('日')
','.join(ls)
','.join([1])
'abc'.isalpha()
'123'.isdigit()
'1a'.isdigit()
''.isdigit()
'²'.isdigit()
'ab1'.isalnum()
' '.isspace()
'AB'.isupper()
'ab'.islower()
'Ab Cd'.istitle()
'5'.zfill(3)
'-5'.zfill(4)
'a'.ljust(3) + '|'
'a'.rjust(3, '*')
'a'.center(4, '-')
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removesuffix('x')
'hELLO'.capitalize()
'x'.nope
'x'.nope()
l.index(1)
l.index(9)
l.count(1)
l.append(1)
d.update({})
d.pop('a')
range(3)
range(3)|list
range(1, 10, 3)|list
range(5, 0, -2)|list
range(3)[1]
range(10)[2:5]
range(3)|length
range(1000000)
range(0)|list
dict(a=1, b=2)
dict([('a', 1)])
dict(d, z=1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace(_a=1)
d|tojson
m|tojson
m[0]|tojson(indent=2)
nest|tojson(indent=4)
el|tojson(indent=2)
ed|tojson(indent=2)
q|tojson
u|tojson
u|tojson(ensure_ascii=true)
[1.0, 1e16, 0.1, none, true, "x"]|tojson
fl|tojson
d|tojson(sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(indent=2, separators=(',', ': '))
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
(1, 2)|tojson
'\x00\x1f\x7f\u2028'|tojson
'</script>&\''|tojson
range(3)|tojson
d|tojson(indent='--')
d|tojson(true)
d.items()|tojson
n[1:]
d[1:]
n|indent
l|truncate(9)
['a', 'b']|urlencode
[]|urlencode
{'a b': 'c/d&é', 'n': 1, 'x': none}|urlencode
{}|urlencode
[('k', 'v w'), ['l', 2.5]]|urlencode
[('k', 'v', 'w')]|urlencode
('<b>'|e)|list|first
no|select|list
no|selectattr('x')|list
no|map('upper')|list
5|map('upper')|list
no|list
no|first
repr
q
[q]
[u, '\x00\x7f\u200b\xa0\u0378', "it's", 'say "x"']
{'k': q}
[1.0, -0.0, 1e300]
l|map('string')|list
'abc'|map('upper')|join('-')
[[1, 2], [3]]|map('sum')|list
[[1, 2], [3]]|sum(start=[])
m|map(attribute='content')|select('string')|join('+')
m|map('tojson')|join(',')
m|last|attr('role')
s|attr('upper')
d|string|length
l|string
(l|string)|length
1 in d.values()
('a', 2) in d.items()
{'a': 1}.items()|list|first
{'x': 1}|dictsort|first|first
'a' in 'abc' in ['abc']
1 == 1 == 1
none == false
'' == none
[] == ()
'é' == 'e\u0301'
s.__class__
d._private
s.format
loop
true ~ false
True and None
[true, false, none, True, False, None]
{'a': true}
l[true]
s[n - 7]
l[n]
d[no]
l['x']
s['upper']()
d['get']('a')
'a.b'.split('.')|last
10 // 3 * 3 + 10 % 3
not (true and false)
(1 == 1) and (2 == 2)
1 + 1 == 2 and 'x' or 'y'
l|length > 2
l|length - 1
l | first + 1
'a' ~ (1 if t else 2)
-l|first
-5|abs
(-5)|abs
2 ** 3|string
m|first|length
[1,2,3,]
{'a': 1,}
(1, 2,)
d.a.b.c is defined
strftime_now('%Y-%m-%d')
strftime_now('%d %B %Y')
strftime_now('%H:%M:%S.%f|%Z|%z|%%f|%-d %')
strftime_now('%d %b %Y %H:%M:%S %j %A')
raise_exception('no')
[s, s|upper]|map('lower')|unique|list
joiner(', ')()
'x' if '' else 'y'
'x' if [] else 'y'
'x' if (el|select) else 'y'
'x' if 0.0 else 'y'
'abc'[1]|upper
'a-b_c'|replace('-', '_')|upper
"%.3f"|format(3.14159)
'日本'|center(6)
'%5s|'|format('日')
'ΑΣ'|lower
'ΑΣ Σ'.lower()
'ǆ'.title() + 'ǆ'.upper()
'Größe ΣΑΣ İﬁ ᾳ'.casefold()
m|sort(attribute='none of these')|length
[none, none]|sort
[{'a': 1}, {'a': 1}]|sort
[none, 1]|sort
m|sort(attribute=5)|length
{'a': none, 'b': none}|dictsort(by='value')
[none, none]|groupby('x')
big|float
big|float('x')
s|truncate(9223372036854775807)
s|truncate(9223372036854775807, true, '', -5)
s|truncate(5, true, '', -9223372036854775807)
s.rjust(2, 'ab')
s.center(20, '')
s.ljust(20, 'ß')
ls|sum(start='')
el|sum(start='x')
[[1], [2]]|sum(start=[])
'x</think>y'.rsplit('</think>', 1)
'</think>y'.rpartition('</think>')
'a---c--'.rsplit('---') + 'a----c'.rsplit('--')
'--a----b'.rsplit('--', 2)
'aXbXc'.rfind('bXc') ~ 'aaa'.rfind('aa') ~ 'ab'.rfind('abc') ~ 'äöäö'.rfind('äö') ~ ''.rfind('a')
'aaa'.rsplit('aa') + 'aaa'.split('aa')
'\x7f~é😀'|tojson(ensure_ascii=true)
{'\x7f': 1}|tojson(ensure_ascii=true)
1e300 ** 2
10.0 ** 400
2.0 ** 10
1e16 // -1.5
-0.0 // 5.0
7.5 // -2
0.0 // -2
'ǅ'.islower() ~ 'ǅ'.isupper() ~ 'aǅ'.islower() ~ 'AǅB'.isupper() ~ 'aª'.islower()
'aǅ' is lower
'AǅBaß'.swapcase()
'{:*^9d}|{:<05}|{:^06}|{:>05}|{:05}'.format(5, 7, 8, 9, -3)
'{: d}|{:+d}|{: .1f}|{:+}|{: }'.format(5, 5, 2.5, 2.5, -2.5)
'{:05}|{:*>8}|{:8}|{:+07}'.format('ab', 2.5, -0.5, 1.25)
'{:5}|{:d}|{:03}|{}'.format(true, true, false, true)
'{!r:>6}|{!s:6}|{!a}|{!r}'.format('a', 5, 'é日😀', none)
'{!x}'.format(1)
'{0}{}'.format(1, 2)
'{}{0}'.format(1, 2)
'{}{a}{}'.format(1, 2, a=3)
'{:.2d}'.format(5)
'{:.3}'.format(5)
'{:d}'.format(2.5)
'{:d}'.format('a')
'{:c}'.format('a')
'{:r}'.format('a')
'{:i}'.format(5)
'{:+}'.format('a')
'{:5}'.format(none)
'{:5}'.format([1])
'{:5}'.format({})
'{:5}'.format(unknown)
'%.3a|%8a|%a' % ('é', 'ß', ['😀'])
'%.0d|%.0x|%ld|%hs' % (0, 0, 5, 'a')
'%5%' % ()
'%%|%d' % 5
""".strip().split("\n")

# Whole templates, with VARIABLES.
STATEMENTS = [
    "", "\n", "\n\n", "a\n", "a\r\nb\rc\n", "  {% if true %}\n  x\n  {% endif %}\ny", "{% if true %} x {%- endif %} y",
    "a {%- if true -%} b {%- endif -%} c", "a\n  {%+ if true %}b{% endif %}", "a\n  {%- if true +%}\n  b\n{% endif +%}\nc",
    "a {# comment #} b", "a\n  {# comment #}\n  b", "a {#- c -#} b", "a\n {#+ c #}\nb", "{# a {{ b }} {% c %} #}x",
    "{% raw %}{{ x }} {% if %}{% endraw %}", "a {%- raw -%}  {{ y }}  {%- endraw -%}  b", "  {% raw %}\n x\n  {% endraw %}\n y",
    "{{- 1 -}}  2  {{- 3 }}", "a\n{{ 1 }}\nb", "  {{ 1 }}", "x\t{% set a = 1 %}\n{{ a }}", "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {}} }}", "{{-1}}", "{{+1}}", "{{ 1 }}\n\n{{ 2 }}\n", "{%if true%}x{%endif%}",
    "{% for i in l %}{{ i }},{% endfor %}", "{% for i in el %}x{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}", "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for i in l %}{{ i }}{% break %}{% else %}none came to its end{% endfor %}", "{% for i in l %}{% continue %}{% else %}no{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% else %}no{% endfor %}", "{% for i in l %}{% if i == 3 %}{% continue %}{% endif %}{% else %}no{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}no{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}no{% endfor %}",
    "{% for i in range(3) %}{% for k in range(2) %}{{ loop.index }}{{ i }}{{ loop.depth }} {% endfor %}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for (a, b) in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in unknown %}x{% else %}y{% endfor %}", "{% for i in no %}x{% endfor %}",
    "{% for i in (1, 2), (3, 4) %}{{ i }}{% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l[::-1] %}{{ i }}{% endfor %}",
    "{% for i in [1, [2, [3]]] recursive %}{% if i is sequence %}({{ loop(i) }}){% else %}{{ i }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for m0 in m recursive %}{{ m0.role }}{% endfor %}", "{{ loop is defined }}{% for i in l %}{{ loop is defined }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set z = i %}{% endif %}{{ z }}.{% endfor %}{{ z is defined }}",
    "{% if true %}{% set y = 5 %}{% endif %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = [1, 2] %}{{ b }}",
    "{% set a %}x{{ 1 }}y{% endset %}[{{ a }}]", "{% set a | upper %}x{{ 1 }}y{% endset %}[{{ a }}]", "{% set a | trim | replace('x', 'z') %} x {% endset %}[{{ a }}]",
    "{% set ns = namespace() %}{% set ns.a %}block{% endset %}{{ ns.a }}", "{% set d.x = 1 %}", "{% set q0.x = 1 %}", "{% set ns = namespace(d) %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(a=1) %}{% set ns.a = ns.a ~ 'x' %}{{ ns.a }}{{ ns['a'] }}{{ ns.q is defined }}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 8 %}b{% else %}c{% endif %}",
    "{% if unknown %}a{% endif %}b", "{% if unknown.x %}a{% endif %}b", "{% if l %}a{% endif %}{% if el %}b{% endif %}{% if not ed %}c{% endif %}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c='y') }} {{ f(a=5) }} {{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ f(1, 2, 3) }}",
    "{% macro f(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ f(1, z=3) }}", "{% macro f(a) %}{{ caller() }}{{ a }}{% endmacro %}{% call f(1) %}body{{ n }}{% endcall %}",
    "{% macro f(a) %}{{ caller(a, 2) }}{% endmacro %}{% call(x, y) f(1) %}{{ x }}-{{ y }}{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}", "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ n }}{% set n = 1 %}{{ n }}{% endmacro %}{{ f() }}{{ n }}", "{% set a = 1 %}{% macro f() %}{{ a }}{% endmacro %}{% set a = 2 %}{{ f() }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f() %}\n  x\n{% endmacro %}\n[{{ f() }}]", "{% macro f() -%}\n  x\n{%- endmacro %}\n[{{ f() }}]",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f }}{{ f.name }}", "{% macro f(*a) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a) %}{{ a|upper }}{% endmacro %}{{ f('x')|length }}{{ f('y') ~ 'z' }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}", "{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}",
    "{% macro f(a) %}{% for x in a %}{{ x }}{{ ',' if not loop.last }}{% endfor %}{% endmacro %}{{ f([1, 2]) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% filter upper %}a{{ 'b' }}{% endfilter %}", "{% filter replace('a', 'x')|upper %}aab{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% generation %}x{{ n }}{% endgeneration %}", "  {% generation %}\n  x\n  {% endgeneration %}\ny", "{% generation %}{% set gx = 1 %}{{ gx }}{% endgeneration %}{{ gx }}", "{% print n, s %}",
    # names that Jinja does not know: refused unless within an if or a choice, up to the next block of its own
    "{% for i in [] %}{{ i|nope }}{% endfor %}", "{% for i in [] if i is nope %}{% endfor %}", "{% for i in l if true or i is nope %}x{% endfor %}", "{% for i in ([] or [])|nope %}{% endfor %}",
    "{% if false %}{{ s|nope }}{% endif %}ok", "{% if true %}ok{% else %}{{ s is nope }}{% endif %}", "{% if false %}a{% elif false and s is nope %}b{% endif %}ok", "{% if false %}{% set a = s|nope %}{% endif %}ok",
    "{% if false %}{% for i in l|nope %}{% endfor %}{% endif %}ok", "{% if false %}{% for i in l %}{{ i|nope }}{% endfor %}{% endif %}ok", "{% if false %}{% for i in l if i is nope %}{% endfor %}{% endif %}ok",
    "{% if false %}{% for i in l %}{% if i %}{{ i|nope }}{% endif %}{% endfor %}{% endif %}ok", "{% if false %}{% for i in l %}{% else %}{{ i|nope }}{% endfor %}{% endif %}ok",
    "{{ 1 if true else s|nope }}", "{{ s|nope if false else 2 }}", "{{ 1 if true or s is nope else 2 }}", "{{ (1 if true else 2)|nope }}", "{{ [1 if true else (s|nope)] }}", "{{ 1 if true else (l|nope|upper) }}",
    "{{ true or s|nope }}", "{{ false and s is nope }}", "{{ true or s is not nope }}", "{{ false and (l|nope) }}", "{{ false and l[s|nope] }}", "{{ false and f(s|nope) }}", "{{ false and [1, {'a': s|nope}] }}", "{{ 'a' ~ (true or 1|nope) }}",
    "{% macro f(a) %}{{ a|nope }}{% endmacro %}ok", "{% macro f(a=1|nope) %}{% endmacro %}ok", "{% if false %}{% macro f(a) %}{{ a|nope }}{% endmacro %}{% endif %}ok", "{% if false %}{% macro f(a=1|nope) %}{% endmacro %}{% endif %}ok",
    "{% if false %}{% filter nope %}x{% endfilter %}{% endif %}ok", "{% if false %}{% filter upper|nope %}x{% endfilter %}{% endif %}ok", "{% if false %}{% filter upper %}{{ 1|nope }}{% endfilter %}{% endif %}ok",
    "{% if false %}{% set a %}{{ 1|nope }}{% endset %}{% endif %}ok", "{% if false %}{% set a|nope %}x{% endset %}{% endif %}ok", "{% if false %}{% with a = 1|nope %}x{% endwith %}{% endif %}ok",
    "{% if false %}{% with a = 1 %}{{ a|nope }}{% endwith %}{% endif %}ok", "{% macro f(a) %}{{ caller() }}{% endmacro %}{% if false %}{% call f(1|nope) %}x{% endcall %}{% endif %}ok",
    "{% macro f(a) %}{{ caller() }}{% endmacro %}{% if false %}{% call f(1) %}{{ 1|nope }}{% endcall %}{% endif %}ok", "{% if false %}{% generation %}{{ 1|nope }}{% endgeneration %}{% endif %}ok", "{% if false %}{% print 1|nope %}{% endif %}ok",
    "{% if false %}{{ s|nope.nope }}{% endif %}ok", "{{ false and s|nope.nope }}", "{{ l|map('nope')|list if false else 'ok' }}", "{{ [] | map('nope')|list }}", "{{ [] | select('nope')|list }}", "{% if 'nope' is filter %}{{ s|nope }}{% endif %}ok",
    "{% if true %}{{ s|nope }}{% endif %}", "{{ s|nope if true else 1 }}", "{% if false %}{{ s|urlize }}{% endif %}ok", "{% for i in [] %}{{ i|urlize|pprint|filesizeformat|random|striptags|wordwrap|xmlattr }}{% endfor %}ok",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% nope %}", "{% if %}", "{% if true %}", "{% endif %}", "{{ }}", "{{ 1", "{% for %}", "{{ 1 + }}",
    "{{ 'abc }}", "{# x", "{% raw %}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ a b }}", "{{ a.'b' }}", "{{ 1 | }}", "{{ x is }}", "{{ a ! b }}", "{{ a ? b }}", "{{ @ }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}",
    "{% break %}", "{% set 1 = 2 %}", "{% set a.b.c = 1 %}", "{% set %}", "{% for i in l %}{% endif %}", "{{ s|nope }}", "{{ s is nope }}", "{{ nope() }}", "{{ 1|upper(2) }}", "{{ s|trim(zz=1) }}", "{{ l|map }}",
    "{{ raise_exception('stop') }}", "{% if false %}{{ raise_exception('stop') }}{% endif %}ok", "{{ a if b }}x", "{{ s if n is defined }}", "{% if n is defined and n is number %}x{% endif %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b", "{{ m|map(attribute='role')|list|tojson }}",
    "{% set x = m|selectattr('role', 'equalto', 'user') %}{{ x|list|length }}{{ x|list|length }}", "{% set x = l|map('string') %}{% if x %}yes{% endif %}{{ x|join }}{{ x|join }}",
    "{% set x = l|select('odd') %}{{ x|first }}{{ x|first }}{{ x|first is defined }}", "{{ (l|map('string'))[0] is defined }}", "{{ l|map('string')|length }}", "{{ 1 in (l|map('int')) }}",
    "{% for g in m|groupby('role') %}{{ g.grouper }}:{{ g.list|length }};{{ g[0] }}{% endfor %}", "{% for r, items in m|groupby('role') %}{{ r }}{{ items|map(attribute='n')|join }}{% endfor %}",
    "{% for row in range(7)|batch(3, '-') %}{{ row|join }}/{% endfor %}", "{% set a = 'x' %}{% set b = a * 3 ~ 'y' %}{{ b }}", "{{ \"a\nb\" }}", "{{ 'a'\n'b' }}", "{{\n1\n}}", "{%\nif true\n%}x{% endif %}",
    "{% set long = 'ab' * 400 %}{% set ns = namespace(t='') %}{% for i in range(5) %}{% set ns.t = ns.t + long %}{% set ns.u = ns.t ~ i %}{% endfor %}{{ ns.t|length }}{{ ns.u|length }}{{ ns.u[-3:] }}",
    "{% set a = 'x' * 600 %}{% set b = a + '1' %}{% set c = b + '2' %}{% set e2 = b + '3' %}{{ b[-2:] }}{{ c[-2:] }}{{ e2[-2:] }}{{ c|length }}",
    "{% set d2 = {'a': 1, **d} %}", "{{ [*l] }}", "{{ l if l else 'no' }}", "{{ {'role': 'x'}.role }}{{ {'get': 1}.get }}", "{{ {'keys': 5}['keys'] }}", "{{ m[0]['role'] + ': ' + m[0]['content'] }}",
    "{{ m[2]['content'] + 'x' }}", "{{ (m|length) ~ ' messages' }}", "{{ m[1:]|length }}{{ m[:1][0].role }}", "{% for x in m[1:] %}{{ loop.index }}{{ x.role }}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for x in m if not ns.found %}{{ x.role }}{% endfor %}", "{% for x in m %}{% if loop.index0 != 0 and m[loop.index0 - 1].role == 'user' %}{{ x.role }}{% endif %}{% endfor %}",
    "{%- for x in m -%}\n  {%- if x.content is string -%}\n    {{ x.content }}\n  {%- else -%}\n    -\n  {%- endif -%}\n{%- endfor -%}\n", "a\n\n  {%- if true %}\n\n  b\n  {%- endif %}\n\nc\n\n",
    "{% if true %}\n\nx{% endif %}", "\t {%- if true -%} \n x{% endif %}", "x {%- set a = 1 %}  y", "x\n{%- set a = 1 %}\n  y", "  \n  {% if true %}x{% endif %}", "a  {% if true %}x{% endif %}", "é  {% if true %}x{% endif %}\n  {% if true %}y{% endif %}",
    "{% set x = {'a': {'b': [1, 2, {'c': 'd'}]}} %}{{ x.a.b[2].c }}{{ x['a'].b[-1]['c'] }}", "{{ '' if x is not defined else x }}", "{{ [[1, 2], [3, 4]]|map('last')|list }}", "{{ [['a', 1]]|map(attribute=0)|list }}{{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }}",
    "{%- set tool = {'name': 'f', 'parameters': {'properties': {'x': {'type': 'string'}}}} -%}{% for k, v in tool.parameters.properties|items %}{{ k }}{{ v.type }}{% endfor %}", "{{ 'x'.join(['a', 'b'])|upper }}",
    "{{ q0|d('x') }}{{ no|d('x') }}{{ no|d('x', 1) }}", "{{ 10000000000000000 }} {{ 1e15 }} {{ 1e16 }} {{ 0.00001 }}", "{{ 'a' if 'b' in 'abc' and 'z' not in 'abc' else 'n' }}", "{{ 1 if n == 7 and not no else 2 }}", "{{ not n == 7 }}", "{{ n is not none and n }}",
    "{% set n = n + 1 %}{{ n }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{{ s.split(' ')[0].lower() ~ '_' ~ s.split(' ')[1].upper() }}", "{{ (s ~ '!') * 2 }}", "{{ d.items()|map('first')|list }}", "{{ d|map('upper')|list }}", "{% for i in l %}{{ loop }}{% endfor %}",
]

UNITS = ["{{ " + e + " }}" for e in EXPRESSIONS] + STATEMENTS

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Current weather\nfor a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City, as in \"Paris\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9.5}}, "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "", "strict": True,
    "parameters": {"type": "object", "properties": {
        "query": {"type": ["string", "null"]}, "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"type": "object", "properties": {"a": {"anyOf": [{"type": "number"}, {"type": "boolean"}]}}}}}}}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments, call_id="abc123def"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


AGENT = [
    {"role": "system", "content": "You help."},
    {"role": "user", "content": "Weather in Paris and Köln?"},
    {"role": "assistant", "content": "", "reasoning_content": "Two calls.\nNow.",
     "tool_calls": [call("get_weather", {"city": "Paris", "days": 2}),
                    call("get_weather", {"city": "Köln", "unit": None, "x": [1, {"y": "<z>"}]}, "def456abc")]},
    {"role": "tool", "content": "{\"t\": 21.5}", "name": "get_weather", "tool_call_id": "abc123def"},
    {"role": "tool", "content": "rain\n", "name": "get_weather", "tool_call_id": "def456abc"},
]
AGENT_TWO = AGENT + [
    {"role": "assistant", "content": "Sunny; rain.", "reasoning_content": "Summing up."},
    {"role": "user", "content": "Thanks. Again?"},
    {"role": "assistant", "content": "Sure: ", "tool_calls": [call("ping", {}, "ghi789abc")]},
    {"role": "tool", "content": "pong", "name": "ping", "tool_call_id": "ghi789abc"},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


BOS = {"bos_token": "<s>", "eos_token": "</s>"}

INPUTS = [
    {**BOS, "messages": [user("Hello")], "add_generation_prompt": True},
    {**BOS, "messages": [user("Hello")]},
    {**BOS, "messages": [{"role": "system", "content": "You are terse."}, user("Hello"), assistant("Hi."), user("Bye")],
     "add_generation_prompt": True},
    {**BOS, "messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")], "add_generation_prompt": True,
     "enable_thinking": False, "thinking": False},
    {**BOS, "messages": [user("a"), {**assistant("b"), "reasoning": "why"}, user("c"), assistant("d")],
     "enable_thinking": True, "thinking": True},
    {**BOS, "messages": [user("Paris?")], "tools": [WEATHER, SEARCH, PING], "add_generation_prompt": True},
    {**BOS, "messages": AGENT, "tools": [WEATHER, PING], "add_generation_prompt": True, "enable_thinking": True},
    {**BOS, "messages": AGENT_TWO, "tools": [WEATHER, PING], "add_generation_prompt": True},
    {**BOS, "messages": AGENT_TWO},
    {**BOS, "messages": [user([{"type": "text", "text": "two"}, {"type": "text", "text": " parts"}])],
     "add_generation_prompt": True},
    {**BOS, "messages": [user("  padded\u00a0\n"), assistant("日本語 😀 \"q\" 'a' \\n {{ x }} <|im_end|>"), user("")],
     "add_generation_prompt": True},
    {**BOS, "messages": [user("x"), {"role": "assistant", "content": None, "tool_calls": [
        call("search", {"query": "é\n\"", "tags": ["a", "b"], "deep": {"a": 1.5}}, "zzzzzzzzz")]}], "tools": [SEARCH]},
    {**BOS, "messages": [assistant("first")], "add_generation_prompt": True},
    {**BOS, "messages": [user("u"), {"role": "system", "content": "late"}, user("v")], "add_generation_prompt": True},
    {**BOS, "messages": []},
    {**BOS, "messages": [{"role": "developer", "content": "Be kind."}, user("q")], "add_generation_prompt": True,
     "reasoning_effort": "high", "model_identity": "You are a test.",
     "documents": [{"title": "T", "text": "Text of\nit"}, {"title": "U", "text": "more"}],
     "builtin_tools": ["python", "browser"], "preserve_thinking": True, "clear_thinking": False,
     "date_string": "1 Jan 2026", "custom_tools": None},
]
