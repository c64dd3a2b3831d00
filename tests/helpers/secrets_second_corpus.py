"""A second corpus for the sanitiser: agents' logs with and without secrets, written without sight of its rules.

`corpus()` renders the templates below with a seeded generator: every secret is made up and every run returns the same
cases. The notation of a template:

- `‹kind›` is a secret of `SECRET`; `‹kind#1›` is one value in several places, `‹kind!url›` its percent-encoded form (see
  `encode`), `‹kind#1/1›` and `‹kind#1/2›` its halves;
- `⟦kind⟧` is a harmless value of `FILLING`, `⟦a|b⟧` one of the words;
- a line `%%` separates templates;
- a first line `@wrap` breaks the lines at 80 columns, as terminals do; `@bare` adds no other lines around the text.
"""

from __future__ import annotations

import base64
import html
import itertools
import json
import random
import re
import string
import urllib.parse
from collections.abc import Callable

VARIANTS = {"positive": (1, 2), "benign": (2, 3)}  # cases of a template, in turn
SEED = 20261122
TERMINAL_COLUMNS = 80
SHORTEST_PIECE = 5  # shorter rests of a torn secret are not required to go
CAPITALS_DIGITS = string.ascii_uppercase + string.digits
ALNUM = string.ascii_letters + string.digits
B64 = ALNUM + "+/"
B64URL = ALNUM + "-_"
HEX = "0123456789abcdef"
FIRST_NAMES = ["Marta", "Jonas", "Aylin", "Pierre", "Giulia", "Tomasz", "Ingrid", "Rafael", "Noor", "Heidrun"]
LAST_NAMES = [
    "Velasco",
    "Brenner",
    "Yildirim",
    "Lefort",
    "Bassani",
    "Wolski",
    "Halvorsen",
    "Pacheco",
    "Haddad",
    "Ostermann",
]
MAIL_DOMAINS = ["gmail.com", "web.de", "outlook.com", "correo-lindero.es", "brenner-logistik.de", "lefort-conseil.fr"]
STREETS = ["Lindenstraße", "Gartenweg", "Hauptstraße", "Am Mühlbach"]
TOWNS = ["50667 Köln", "80331 München", "04109 Leipzig", "28195 Bremen"]
SYLLABLES = ["ba", "kor", "lin", "mo", "ter", "sal", "vi", "dun", "fra", "gol", "nep", "ri", "zan", "pul", "hed", "tos"]
HOSTS = ["db", "api", "build", "cache", "edge"]
LAN_ZONES = ["prod.internal", "corp.lan", "eu.acme.io"]
ZONES = ["acme.io", "us.acme.io", "eu.acme.io"]

Kind = Callable[[random.Random], str]


def draw(rng: random.Random, alphabet: str, count: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(count))


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def word(rng: random.Random, least: int = 4) -> str:
    return "".join(rng.choice(SYLLABLES) for _ in range(least)).capitalize()


def password(rng: random.Random) -> str:
    return word(rng, 2) + draw(rng, "0123456789", 2) + rng.choice("!#*+?.-_") + draw(rng, ALNUM, 5)


def shell_password(rng: random.Random, marks: str) -> str:
    text = [draw(rng, ALNUM, 3) for _ in range(5)]
    return "".join(part + mark for part, mark in zip(text, [*rng.sample(marks, 4), ""], strict=True))


def uuid(rng: random.Random) -> str:
    text = draw(rng, HEX, 32)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def jwt(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")

    body = {"sub": draw(rng, "0123456789", 8), "iat": 1760000000 + rng.randrange(10**6), "scope": "write"}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(body)}.{draw(rng, B64URL, 43)}"


def iban(rng: random.Random) -> str:
    account = draw(rng, "0123456789", 18)
    check = 98 - int(account + "131400") % 97
    text = f"DE{check:02d}{account}"
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4)) if rng.random() < 0.5 else text


def card(rng: random.Random) -> str:
    digits = [int(d) for d in "4" + draw(rng, "0123456789", 14)]
    doubled = [d if i % 2 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)]
    text = "".join(map(str, digits)) + str(-sum(doubled) % 10)
    return " ".join(text[i : i + 4] for i in range(0, 16, 4)) if rng.random() < 0.5 else text


def social_security_number(rng: random.Random) -> str:
    """Return a French number whose last two digits are its right check digits."""
    year, town, order, department = (
        rng.randrange(60, 99),
        rng.randrange(101, 999),
        rng.randrange(101, 999),
        rng.randrange(21, 95),
    )
    check = 97 - int(f"2{year}05{department}{town}{order}") % 97
    return f"2 {year} 05 {department} {town} {order} {check:02d}"


def person(rng: random.Random) -> str:
    return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"


def mail(rng: random.Random) -> str:
    return f"{rng.choice(FIRST_NAMES).lower()}.{rng.choice(LAST_NAMES).lower()}{rng.randrange(60, 99)}@{rng.choice(MAIL_DOMAINS)}"


def service_account(rng: random.Random) -> str:
    name = "private" + "_key"
    key = "-----BEGIN PRIVATE" + " KEY-----\n" + draw(rng, B64, 64) + "\n-----END PRIVATE KEY-----\n"
    return json.dumps({"type": "service_account", "project_id": "billing-prod", name: key})


def prefixed(start: list[str], alphabet: str, count: int) -> Kind:
    """Return a generator of tokens; the prefix comes in parts so that no scanner takes this file for a leak."""
    return lambda rng: "".join(start) + draw(rng, alphabet, count)


def drawn(alphabet: str, count: int) -> Kind:
    return lambda rng: draw(rng, alphabet, count)


SECRET: dict[str, Kind] = {
    "pw": password,
    "pwshell": lambda rng: shell_password(rng, "()[]{}$&;|<>*?!~^%"),
    "pwquote": lambda rng: shell_password(rng, "'`!$()[]"),
    "pwurl": lambda rng: shell_password(rng, "@:/?#%&+"),
    "word": word,
    "lower": lambda rng: word(rng).lower(),
    "phrase": lambda rng: " ".join(word(rng, 2).lower() for _ in range(4)),
    "dashed": lambda rng: "-".join(word(rng, 2).lower() for _ in range(4)),
    "pin4": lambda rng: str(rng.randrange(1010, 9989)),
    "pin6": lambda rng: str(rng.randrange(101010, 998989)),
    "hex32": drawn(HEX, 32),
    "hex40": drawn(HEX, 40),
    "hex64": drawn(HEX, 64),
    "alnum20": drawn(ALNUM, 20),
    "alnum32": drawn(ALNUM, 32),
    "alnum40": drawn(ALNUM, 40),
    "alnum64": drawn(ALNUM, 64),
    "b64_44": lambda rng: b64(rng.randbytes(32)),
    "b64_88": lambda rng: b64(rng.randbytes(64)),
    "b64line": drawn(B64, 64),
    "b64tail": lambda rng: draw(rng, B64, 31) + "=",
    "b64url43": drawn(B64URL, 43),
    "b64url86": drawn(B64URL, 86),
    "uuid": uuid,
    "jwt": jwt,
    "awsid": prefixed(["AK", "IA"], string.ascii_uppercase + "234567", 16),
    "awssts": prefixed(["AS", "IA"], string.ascii_uppercase + "234567", 16),
    "awssecret": drawn(B64, 40),
    "awssession": lambda rng: "IQoJb3JpZ2luX2Vj" + draw(rng, B64, 180) + "=",
    "gcp": prefixed(["AI", "za"], B64URL, 35),
    "gcpoauth": prefixed(["GOC", "SPX-"], B64URL, 28),
    "ya29": prefixed(["ya", "29."], B64URL, 90),
    "ghp": prefixed(["gh", "p_"], ALNUM, 36),
    "gho": prefixed(["gh", "o_"], ALNUM, 36),
    "ghs": prefixed(["gh", "s_"], ALNUM, 36),
    "ghpat": lambda rng: "github" + "_pat_" + draw(rng, ALNUM, 22) + "_" + draw(rng, ALNUM, 59),
    "glpat": prefixed(["gl", "pat-"], B64URL, 20),
    "gldt": prefixed(["gl", "dt-"], B64URL, 20),
    "npm": prefixed(["np", "m_"], ALNUM, 36),
    "pypi": prefixed(["py", "pi-AgEIcHlwaS5vcmc"], B64URL, 120),
    "docker": prefixed(["dckr", "_pat_"], B64URL, 27),
    "xoxb": lambda rng: (
        "xo" + f"xb-{draw(rng, string.digits, 12)}-{draw(rng, string.digits, 13)}-{draw(rng, ALNUM, 24)}"
    ),
    "xapp": lambda rng: (
        "xa" + f"pp-1-A0{draw(rng, '123456789ABCDEF', 9)}-{draw(rng, string.digits, 13)}-{draw(rng, HEX, 64)}"
    ),
    "slackhook": lambda rng: (
        f"T0{draw(rng, CAPITALS_DIGITS, 8)}/B0{draw(rng, CAPITALS_DIGITS, 8)}/{draw(rng, ALNUM, 24)}"
    ),
    "discord": lambda rng: f"MT{draw(rng, ALNUM, 24)}.G{draw(rng, ALNUM, 5)}.{draw(rng, B64URL, 38)}",
    "b64url68": drawn(B64URL, 68),
    "telegram": lambda rng: f"{draw(rng, '123456789', 10)}:AA{draw(rng, B64URL, 33)}",
    "stripe": prefixed(["sk", "_live_"], ALNUM, 24),
    "stripetest": prefixed(["sk", "_test_51"], ALNUM, 97),
    "whsec": prefixed(["wh", "sec_"], ALNUM, 32),
    "sendgrid": lambda rng: "S" + f"G.{draw(rng, B64URL, 22)}.{draw(rng, B64URL, 43)}",
    "mailgun": lambda rng: "ke" + f"y-{draw(rng, HEX, 32)}",
    "mailchimp": lambda rng: f"{draw(rng, HEX, 32)}-us{rng.randrange(1, 21)}",
    "openai": lambda rng: "sk-" + f"proj-{draw(rng, B64URL, 48)}T3Blbk" + f"FJ{draw(rng, B64URL, 48)}",
    "anthropic": lambda rng: "sk-" + f"ant-api03-{draw(rng, B64URL, 93)}AA",
    "hf": prefixed(["h", "f_"], string.ascii_letters, 34),
    "sentry": lambda rng: "snt" + f"rys_{draw(rng, ALNUM, 90)}_{draw(rng, ALNUM, 43)}",
    "newrelic": prefixed(["NR", "AK-"], string.ascii_uppercase + string.digits, 27),
    "grafana": lambda rng: "gl" + f"sa_{draw(rng, ALNUM, 32)}_{draw(rng, HEX, 8)}",
    "vault": prefixed(["hv", "s."], B64URL, 90),
    "heroku": lambda rng: "HR" + f"KU-{uuid(rng)}",
    "shopify": prefixed(["shp", "at_"], HEX, 32),
    "ocean": prefixed(["dop", "_v1_"], HEX, 64),
    "bitbucket": prefixed(["AT", "BB"], B64URL, 32),
    "atlassian": prefixed(["ATA", "TT3xFfGF0"], B64URL, 175),
    "databricks": prefixed(["da", "pi"], HEX, 32),
    "linear": prefixed(["lin", "_api_"], ALNUM, 40),
    "notion": prefixed(["nt", "n_"], ALNUM, 46),
    "wandb": drawn(HEX, 40),
    "age": prefixed(["AGE-SECRET-", "KEY-1"], "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "otp": drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32),
    "recovery": lambda rng: f"{draw(rng, HEX, 5)}-{draw(rng, HEX, 5)}",
    "bcrypt": lambda rng: f"$2b$12${draw(rng, './' + ALNUM, 53)}",
    "apr1": lambda rng: f"$apr1${draw(rng, ALNUM, 8)}${draw(rng, './' + ALNUM, 22)}",
    "pbkdf2": lambda rng: f"pbkdf2_sha256$600000${draw(rng, ALNUM, 22)}${b64(rng.randbytes(32))}",
    "sha512crypt": lambda rng: f"$6${draw(rng, ALNUM, 16)}${draw(rng, './' + ALNUM, 86)}",
    "argon2": lambda rng: f"$argon2id$v=19$m=65536,t=3,p=4${draw(rng, B64, 22)}${draw(rng, B64, 43)}",
    "b64env": lambda rng: b64(
        f"DB_USER=svc_orders\nDB_PASSWORD={password(rng)}\nSTRIPE_KEY={'sk'}_live_{draw(rng, ALNUM, 24)}\n"
    ),
    "b64basic": lambda rng: b64(f"{rng.choice(['deploy', 'ci-bot', 'admin'])}:{password(rng)}"),
    "b64pw": lambda rng: b64(password(rng) + draw(rng, ALNUM, 6)),
    "b64sa": lambda rng: b64(service_account(rng)),
    "mail": mail,
    "phone": lambda rng: f"+49 17{rng.randrange(10)} {rng.randrange(2000000, 9999999)}",
    "usphone": lambda rng: (
        f"({rng.choice([212, 415, 503, 617])}) {rng.randrange(220, 540)}-{rng.randrange(1000, 9999)}"
    ),
    "iban": iban,
    "card": card,
    "ssn": lambda rng: f"{rng.randrange(130, 660)}-{rng.randrange(11, 89)}-{rng.randrange(1001, 9899)}",
    "address": lambda rng: f"{rng.choice(STREETS)} {rng.randrange(2, 180)}, {rng.choice(TOWNS)}",
    "nir": social_security_number,
}

FILLING: dict[str, Kind] = {
    "esc": lambda rng: "\x1b",
    "tab": lambda rng: "\t",
    "sha": drawn(HEX, 40),
    "sha7": drawn(HEX, 7),
    "sha256": drawn(HEX, 64),
    "md5": drawn(HEX, 32),
    "integrity": lambda rng: "sha512-" + b64(rng.randbytes(64)),
    "pip256": lambda rng: "sha256:" + draw(rng, HEX, 64),
    "b64line": drawn(B64, 76),
    "b64url43": drawn(B64URL, 43),
    "b64url342": drawn(B64URL, 342),
    "b64cert": drawn(B64, 64),
    "b64u384": drawn(B64, 64),
    "fingerprint": drawn(B64, 43),
    "h1": lambda rng: b64(rng.randbytes(32)),
    "hex2": drawn(HEX, 2),
    "hexbytes": lambda rng: " ".join(draw(rng, HEX, 4) for _ in range(8)),
    "uuid": uuid,
    "date": lambda rng: f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}",
    "time": lambda rng: f"{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}",
    "epoch": lambda rng: str(1760000000 + rng.randrange(10**7)),
    "num": lambda rng: str(rng.randrange(2, 900)),
    "big": lambda rng: str(rng.randrange(10**6, 10**9)),
    "float": lambda rng: f"{rng.random() * 9:.4f}",
    "ver": lambda rng: f"{rng.randrange(1, 12)}.{rng.randrange(30)}.{rng.randrange(12)}",
    "port": lambda rng: str(rng.choice([3000, 5432, 6379, 8000, 8080, 8443, 9090])),
    "ip": lambda rng: f"127.{rng.randrange(250)}.{rng.randrange(250)}.{rng.randrange(1, 250)}",
    "host": lambda rng: f"{rng.choice(HOSTS)}-{rng.randrange(1, 30):02d}.{rng.choice(ZONES)}",
    "lanhost": lambda rng: f"{rng.choice(HOSTS)}-{rng.randrange(1, 30):02d}.{rng.choice(LAN_ZONES)}",
    "user": lambda rng: rng.choice(["deploy", "svc_orders", "ci-bot", "root", "app", "backup"]),
    "app": lambda rng: rng.choice(["orders", "billing", "inventory", "gateway", "mailer", "search"]),
    "dna": drawn("ACGT", 70),
    "protein": drawn("ACDEFGHIKLMNPQRSTVWY", 60),
    "isbn": lambda rng: f"978-3-{rng.randrange(10, 99)}-{rng.randrange(100000, 999999)}-{rng.randrange(10)}",
    "serial": lambda rng: f"SN-{draw(rng, string.ascii_uppercase + string.digits, 10)}",
    "ed25519": lambda rng: "AAAAC3NzaC1lZDI1NTE5AAAAI" + draw(rng, B64, 43),
    "sshrsa": lambda rng: "AAAAB3NzaC1yc2EAAAADAQABAAABgQ" + draw(rng, B64, 340),
    "person": person,
}


NOISE = [
    "$ ls\nREADME.md  Makefile  src  tests  docker-compose.yml",
    "$ git status -sb\n## main...origin/main [ahead ⟦num⟧]\n M src/⟦app⟧/settings.py",
    "[⟦time⟧] INFO  ⟦app⟧.worker: processed ⟦num⟧ messages in ⟦float⟧s",
    '⟦date⟧ ⟦time⟧,⟦num⟧ DEBUG urllib3.connectionpool: http://127.0.0.1:⟦port⟧ "GET /health HTTP/1.1" 200 ⟦num⟧',
    "commit ⟦sha⟧\nDate:   ⟦date⟧ ⟦time⟧ +0200\n\n    ⟦app⟧: retry on timeouts",
    "request_id=⟦uuid⟧ status=200 duration_ms=⟦num⟧ path=/v1/⟦app⟧",
    "Step ⟦num⟧/1000  loss=⟦float⟧  lr=3e-05  tokens/s=⟦big⟧",
    "collected ⟦num⟧ items\n\ntests/test_⟦app⟧.py ........                    [100%]",
    "Successfully installed click-⟦ver⟧ httpx-⟦ver⟧ pydantic-⟦ver⟧",
    "+ make build\ngo build -o bin/⟦app⟧ ./cmd/⟦app⟧",
    "npm WARN deprecated inflight@1.0.6: this module is not supported\nadded ⟦num⟧ packages in ⟦num⟧s",
    "#⟦num⟧ [build 3/9] RUN apt-get install -y --no-install-recommends curl\n#⟦num⟧ CACHED",
    "total 24\n-rw-r--r-- 1 root root ⟦num⟧ Mar  4 10:12 ⟦app⟧.log",
    "Let me look at the configuration first and then run the tests again.",
    '{"level":"info","ts":⟦epoch⟧,"msg":"listening","addr":":⟦port⟧"}',
    "exit code: 0",
    "Done in ⟦float⟧s.",
    "⟦host⟧ ⟦ip⟧ up ⟦num⟧ days, load ⟦float⟧",
]

POSITIVE: dict[str, str] = {
    "terminal colours": r"""
⟦esc⟧[32m✔⟦esc⟧[0m Created token ⟦esc⟧[1m‹ghp›⟦esc⟧[0m for ⟦user⟧
%%
⟦esc⟧[1;33mAPI_KEY⟦esc⟧[0m=⟦esc⟧[36m‹alnum32›⟦esc⟧[0m
%%
⟦esc⟧[90m[⟦time⟧]⟦esc⟧[39m ⟦esc⟧[34mINFO⟦esc⟧[39m login ok, ⟦esc⟧[2mpassword=⟦esc⟧[22m⟦esc⟧[31m‹pw›⟦esc⟧[39m
%%
  ⟦esc⟧[35mSTRIPE_SECRET⟦esc⟧[0m: ⟦esc⟧[33m"‹stripe›"⟦esc⟧[0m,
  ⟦esc⟧[35mLOG_LEVEL⟦esc⟧[0m: ⟦esc⟧[33m"debug"⟦esc⟧[0m,
%%
⟦esc⟧[38;5;208mexport⟦esc⟧[0m ⟦esc⟧[4mVAULT_TOKEN⟦esc⟧[24m=⟦esc⟧[38;5;118m‹vault›⟦esc⟧[0m
%%
$ rg -n --color=always ghp_ ~/.config
⟦esc⟧[0m⟦esc⟧[35mhub.yml⟦esc⟧[0m:⟦esc⟧[32m4⟦esc⟧[0m:oauth_token: ⟦esc⟧[1m⟦esc⟧[31mghp_⟦esc⟧[0m‹alnum40›
""",
    "uuid tokens": r"""
⟦LINODE|UPSTASH|HEROKU|PORTAINER⟧_TOKEN=‹uuid›
TRACE_ID=⟦uuid⟧
%%
$ cat .env.⟦app⟧
AZURE_DEVOPS_PAT=‹uuid›
REGION=eu-central-1
%%
{"name": "⟦app⟧", "build_id": "⟦uuid⟧", "⟦api_key|apiKey|access_token|client_secret⟧": "‹uuid›"}
%%
[⟦time⟧] using registration token ‹uuid› for runner ⟦lanhost⟧
%%
export POSTMAN_API_TOKEN="‹uuid›"   # workspace ⟦uuid⟧
""",
    "shell characters in settings": r"""
$ cat .env
APP_ENV=production
DB_HOST=⟦lanhost⟧
⟦DB_PASSWORD|MYSQL_ROOT_PASSWORD|SMTP_PASS⟧='‹pwshell›'
CACHE_TTL=300
%%
# .env
SECRET_KEY="‹pwshell›"
DEBUG=False
%%
PGPASSWORD=‹pwshell›
PGUSER=⟦user⟧
%%
database:
  host: ⟦lanhost⟧
  user: ⟦user⟧
  password: "‹pwshell›"
  pool: 5
%%
spring.datasource.url=jdbc:postgresql://⟦lanhost⟧:5432/⟦app⟧
spring.datasource.password=‹pwshell›
spring.jpa.show-sql=false
%%
[database]
user = "⟦user⟧"
password = "‹pwshell›"
port = 5432
%%
{
  "smtp": {"host": "⟦lanhost⟧", "port": 587, "user": "mailer", "pass": "‹pwshell›"},
  "retries": 3
}
%%
auth:
  username: ⟦user⟧
  password: '‹pwquote!yaml›'
  method: scram
%%
# settings.py
DEBUG = False
SECRET_KEY = "django-insecure-‹pwshell›‹alnum20›"
ALLOWED_HOSTS = ["⟦lanhost⟧"]
%%
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "⟦app⟧",
        "USER": "⟦user⟧",
        "PASSWORD": "‹pwshell›",
        "HOST": "⟦lanhost⟧",
    }
}
%%
# config/secrets.yml
production:
  secret_key_base: ‹hex64›‹hex64›
  smtp_password: ‹pw›
%%
production:
  adapter: mysql2
  database: ⟦app⟧_production
  username: ⟦user⟧
  password: <%= ENV.fetch("DB_PASS", "‹pw›") %>
%%
<connectionStrings>
  <add name="Main" connectionString="Server=⟦lanhost⟧;Database=⟦app⟧;User Id=sa;Password=‹pw›;Encrypt=true" />
</connectionStrings>
%%
define( 'DB_USER', '⟦user⟧' );
define( 'DB_PASSWORD', '‹pwshell›' );
define( 'AUTH_KEY', '‹alnum64›' );
""",
    "torn by the terminal": r"""
@wrap
remote: your new token is active. Write it down now, it is shown once: ‹ghpat›
%%
@wrap
root@⟦lanhost⟧:/srv/⟦app⟧# export ANTHROPIC_API_KEY=‹anthropic›
%%
@wrap
2026-03-04 10:22:01 DEBUG ⟦app⟧.http: request headers {'User-Agent': 'python', 'Authorization': 'Bearer ‹jwt›'}
%%
@wrap
$ curl -s -H "PRIVATE-TOKEN: ‹glpat›" https://gitlab.corp.lan/api/v4/projects/⟦num⟧ && curl -s -H "X-Api-Key: ‹alnum40›" https://⟦lanhost⟧/v1/⟦app⟧
%%
@wrap
OPENAI_API_KEY=‹openai›
""",
    "continued and joined": r"""
curl -X POST https://⟦lanhost⟧/deploy \
  -H "Authorization: Bearer ‹ghp#1/1›\
‹ghp#1/2›" \
  -d ref=main
%%
TOKEN = ("‹alnum40#1/1›"
         "‹alnum40#1/2›")
%%
const apiKey = "‹alnum40#1/1›" +
  "‹alnum40#1/2›";
%%
private static final String CLIENT_SECRET = "‹b64_44#1/1›"
    + "‹b64_44#1/2›";
%%
api_key: >-
  ‹alnum64#1/1›
  ‹alnum64#1/2›
region: eu-west-1
%%
export SERVICE_TOKEN=‹jwt#1/1›\
‹jwt#1/2›
""",
    "base64": r"""
$ base64 -w0 .env
‹b64env›
%%
echo '‹b64env›' | base64 -d > .env
%%
GET /v2/ HTTP/1.1
Host: registry.corp.lan
Authorization: Basic ‹b64basic›
Accept: */*
%%
apiVersion: v1
kind: Secret
metadata:
  name: ⟦app⟧-db
  namespace: prod
type: Opaque
data:
  username: c3ZjX29yZGVycw==
  password: ‹b64pw›
%%
$ kubectl get secret ⟦app⟧ -o jsonpath='{.data}'
{"DATABASE_PASSWORD":"‹b64pw›","API_TOKEN":"‹b64pw›"}
%%
GOOGLE_CREDENTIALS_B64=‹b64sa›
%%
$ kubectl get secret ⟦app⟧-db -o jsonpath='{.data.password}' | base64 -d
‹pw›
%%
{"auths": {"registry.corp.lan:5000": {"auth": "‹b64basic›"}}}
""",
    "private keys": r"""
$ cat ~/.ssh/id_rsa
-----BEGIN RSA PRIVATE KEY-----
‹b64line›
‹b64line›
‹b64line›
‹b64tail›
-----END RSA PRIVATE KEY-----
%%
-----BEGIN OPENSSH PRIVATE KEY-----
‹b64line›
‹b64line›
‹b64line›
‹b64tail›
-----END OPENSSH PRIVATE KEY-----
%%
tls:
  key: |
    -----BEGIN PRIVATE KEY-----
    ‹b64line›
    ‹b64line›
    ‹b64tail›
    -----END PRIVATE KEY-----
  port: 8443
%%
{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\n‹b64line›\n‹b64tail›\n-----END PRIVATE KEY-----\n",
 "client_id": "⟦big⟧"}
%%
@bare
‹b64line›
‹b64line›
‹b64line›
‹b64tail›
-----END RSA PRIVATE KEY-----
⟦user⟧@⟦lanhost⟧:~$ exit
%%
@bare
‹b64line›
‹b64line›
‹b64tail›
-----END OPENSSH PRIVATE KEY-----
$ ls ~/.ssh
id_ed25519  id_ed25519.pub  known_hosts
%%
$ head -4 server.key
-----BEGIN EC PRIVATE KEY-----
‹b64line›
‹b64line›
$ wc -l server.key
27 server.key
%%
PuTTY-User-Key-File-3: ssh-ed25519
Encryption: none
Comment: ⟦user⟧@⟦lanhost⟧
Public-Lines: 2
AAAAC3NzaC1lZDI1NTE5AAAAIGkq
qh1l
Private-Lines: 1
‹b64_44›
Private-MAC: ⟦sha256⟧
%%
{"kty": "EC", "crv": "P-256", "x": "⟦b64url43⟧", "y": "⟦b64url43⟧", "d": "‹b64url43›", "use": "sig"}
%%
{"kty":"oct","kid":"⟦uuid⟧","alg":"HS256","k":"‹b64url86›"}
%%
# created: ⟦date⟧T10:00:00+02:00
# public key: age1examplepublic
‹age›
%%
[Interface]
PrivateKey = ‹b64_44›
Address = ⟦ip⟧/24

[Peer]
AllowedIPs = 0.0.0.0/0
PresharedKey = ‹b64_44›
%%
SSH_KEY="-----BEGIN OPENSSH PRIVATE KEY-----\n‹b64line›\n‹b64line›\n‹b64tail›\n-----END OPENSSH PRIVATE KEY-----"
""",
    "tables": r"""
id,user,password,created
1,⟦user⟧,‹pw›,⟦date⟧
2,reports,‹pw›,⟦date⟧
%%
host⟦tab⟧username⟦tab⟧password⟦tab⟧port
⟦lanhost⟧⟦tab⟧⟦user⟧⟦tab⟧‹pw›⟦tab⟧22
⟦lanhost⟧⟦tab⟧admin⟦tab⟧‹pw›⟦tab⟧22
%%
| service | user | password |
|---|---|---|
| ⟦lanhost⟧ | admin | ‹pw› |
| ⟦lanhost⟧ | ⟦user⟧ | ‹pw› |
%%
⟦app⟧=# select id, name, api_key from clients limit 2;
 id |   name    |             api_key
----+-----------+----------------------------------
  1 | acme      | ‹alnum32›
  2 | globex    | ‹alnum32›
(2 rows)
%%
NAME          TOKEN                                     EXPIRES
ci            ‹alnum40›  ⟦date⟧
nightly       ‹alnum40›  ⟦date⟧
%%
+----+----------+------------------+
| id | login    | passwd           |
+----+----------+------------------+
|  1 | ⟦user⟧   | ‹pw›    |
+----+----------+------------------+
1 row in set (0.00 sec)
%%
Server;Benutzer;Passwort;Bemerkung
⟦lanhost⟧;⟦user⟧;‹pw›;Testsystem
%%
*************************** 1. row ***************************
      id: ⟦num⟧
   login: ⟦user⟧
password: ‹pw›
  active: 1
""",
    "cookies": r"""
# Netscape HTTP Cookie File
.⟦app⟧.corp.lan⟦tab⟧TRUE⟦tab⟧/⟦tab⟧TRUE⟦tab⟧⟦epoch⟧⟦tab⟧sessionid⟦tab⟧‹alnum32›
.⟦app⟧.corp.lan⟦tab⟧TRUE⟦tab⟧/⟦tab⟧FALSE⟦tab⟧⟦epoch⟧⟦tab⟧theme⟦tab⟧dark
%%
#HttpOnly_gitlab.corp.lan⟦tab⟧FALSE⟦tab⟧/⟦tab⟧TRUE⟦tab⟧0⟦tab⟧_gitlab_session⟦tab⟧‹hex32›
%%
< HTTP/1.1 200 OK
< Content-Type: text/html
< Set-Cookie: ⟦PHPSESSID|JSESSIONID|connect.sid|_app_session⟧=‹alnum32›; Path=/; HttpOnly; Secure
< Content-Length: ⟦num⟧
%%
GET /account HTTP/1.1
Host: ⟦lanhost⟧
Cookie: lang=de; sessionid=‹alnum32›
%%
curl 'https://⟦lanhost⟧/api/me' -b 'session=‹jwt›' -H 'accept: application/json'
%%
curl --cookie "auth_token=‹hex40›" https://⟦lanhost⟧/export.csv -o export.csv
""",
    "expect scripts": r"""
#!/usr/bin/expect -f
spawn ssh ⟦user⟧@⟦lanhost⟧
expect "password:"
send "‹pw›\r"
interact
%%
expect {
    "yes/no" { send "yes\r"; exp_continue }
    "*assword*" { send -- "‹pw›\r" }
}
%%
child = pexpect.spawn("ssh ⟦user⟧@⟦lanhost⟧")
child.expect("password: ")
child.sendline("‹pw›")
%%
$ sudo -S apt-get update <<< '‹pw›'
[sudo] password for ⟦user⟧:
%%
$ echo '‹pw›' | sudo -S systemctl restart ⟦app⟧
""",
    "escaped values": r"""
{"event": "login", "password": "‹pw!u›", "ok": true}
%%
{"user":"⟦user⟧","password":"‹word#1›\u0026‹alnum20#2›\u003c3"}
%%
POST /login HTTP/1.1
Content-Type: application/x-www-form-urlencoded

user=⟦user⟧&password=‹pwurl!url›&remember=1
%%
⟦time⟧ GET /callback?state=⟦num⟧&access_token=‹ya29!url›&token_type=Bearer 302
%%
https://⟦lanhost⟧/reset?uid=⟦num⟧&token=‹hex40›
%%
<input type="hidden" name="password" value="‹pwshell!html›">
%%
<config password="‹pw!htmlall›" retries="3"/>
%%
postgresql://⟦user⟧:‹pwurl!url›@⟦lanhost⟧:5432/⟦app⟧?sslmode=require
%%
password=‹pw!urlall›&user=⟦user⟧
%%
"{\"db\": {\"user\": \"⟦user⟧\", \"password\": \"‹pw›\"}}"
%%
b'password=‹pw!x›'
""",
    "letters only": r"""
password=‹lower›
user=⟦user⟧
%%
Benutzer: ⟦user⟧
Passwort: ‹word›
%%
login: ⟦user⟧
password: ‹lower›
Last login: ⟦date⟧ ⟦time⟧ from ⟦ip⟧
%%
MYSQL_PASSWORD=‹word›
%%
DB_PASS: ‹lower›
%%
mot de passe : ‹lower›
%%
Contraseña: ‹word›
%%
passphrase: "‹phrase›"
""",
    "english prose": r"""
hey, the password for the staging box is ‹pw› — please don't share it
%%
I logged in as ⟦user⟧ with the password "‹word›" and it works now.
%%
Use ‹pw› as the root password, then restart the service.
%%
The alarm PIN is ‹pin4›, you have 30 seconds to enter it.
%%
Our ⟦Mailgun|Algolia|OpenWeather|Mapbox⟧ API key is ‹hex32›. Put it into the config before the demo.
%%
Wifi at the office: network AcmeGuest, password ‹pw›
%%
user: can you log into the router? admin / ‹pw›
assistant: I will try these credentials now.
%%
I've reset your account. Your temporary password is ‹pw› and must be changed at first login.
%%
Your verification code is ‹pin6›. It expires in 10 minutes.
%%
For sudo, my password is ‹lower›, go ahead.
%%
user: the token you need: ‹alnum40›
""",
    "german prose": r"""
Das Passwort für den Testserver lautet ‹pw›, bitte nicht weitergeben.
%%
Der PIN für die Karte ist ‹pin4›.
%%
Melde dich als ⟦user⟧ mit dem Kennwort „‹pw›“ an.
%%
Mein API-Schlüssel ist ‹alnum32›, damit sollte es gehen.
%%
WLAN-Schlüssel: ‹pw›
%%
Die Zugangsdaten: Benutzer ⟦user⟧, Passwort ‹word›.
""",
    "spanish prose": r"""
La contraseña del servidor es ‹pw›, no la compartas.
%%
El PIN de la tarjeta es ‹pin4›.
%%
Usa la clave de API ‹alnum32› para las pruebas.
%%
Entra con el usuario ⟦user⟧ y la contraseña «‹word›».
""",
    "french prose": r"""
Le mot de passe du serveur est ‹pw›, merci de ne pas le diffuser.
%%
Le code PIN est ‹pin4›.
%%
Voici la clé API : ‹alnum32›
%%
Connecte-toi avec l'utilisateur ⟦user⟧ et le mot de passe « ‹pw› ».
""",
    "italian prose": r"""
La password del server è ‹pw›, non dirla a nessuno.
%%
Il PIN della carta è ‹pin4›.
%%
La chiave API è ‹alnum32›, la trovi anche nel file .env.
""",
    "portuguese prose": r"""
A senha do servidor é ‹pw›, não compartilhe.
%%
O PIN do cartão é ‹pin4›.
%%
A chave da API é ‹alnum32›, use nos testes.
""",
    "connection strings": r"""
DATABASE_URL=⟦postgres|postgresql|mysql|mariadb⟧://⟦user⟧:‹pw›@⟦lanhost⟧:5432/⟦app⟧
%%
sqlalchemy.exc.OperationalError: could not connect: postgresql+psycopg2://⟦user⟧:‹alnum20›@⟦lanhost⟧/⟦app⟧
%%
mongoose.connect("mongodb+srv://⟦user⟧:‹pw›@cluster0.⟦app⟧.mongodb.net/prod?retryWrites=true&w=majority")
%%
REDIS_URL=redis://:‹alnum40›@⟦lanhost⟧:6379/0
%%
broker_url = "amqp://⟦user⟧:‹word›@⟦lanhost⟧:5672//"
%%
jdbc:mysql://⟦lanhost⟧:3306/⟦app⟧?user=⟦user⟧&password=‹pw›&useSSL=true
%%
jdbc:oracle:thin:⟦user⟧/‹word›@⟦lanhost⟧:1521/ORCL
%%
DefaultEndpointsProtocol=https;AccountName=⟦app⟧store;AccountKey=‹b64_88›;EndpointSuffix=core.windows.net
%%
Endpoint=sb://⟦app⟧.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=‹b64_44›
%%
Server=tcp:⟦lanhost⟧,1433;Initial Catalog=⟦app⟧;User ID=sa;Password=‹pw›;TrustServerCertificate=True;
%%
host=⟦lanhost⟧ port=5432 dbname=⟦app⟧ user=⟦user⟧ password=‹pw› connect_timeout=5
%%
$ sqlcmd -S ⟦lanhost⟧ -U sa -P '‹pw›' -Q "select 1"
%%
https://⟦app⟧.blob.core.windows.net/backups/db.bak?sv=2023-11-03&se=2026-12-01&sp=r&sig=‹b64_44!url›
%%
clickhouse-client --host ⟦lanhost⟧ --user ⟦user⟧ --password ‹pw› --query "select 1"
%%
cloudinary://⟦big⟧⟦big⟧:‹alnum20›@⟦app⟧
%%
ftp://⟦user⟧:‹word›@⟦lanhost⟧/incoming/
""",
    "cloud keys": r"""
[default]
aws_access_key_id = ‹awsid›
aws_secret_access_key = ‹awssecret›
region = eu-central-1
%%
export AWS_ACCESS_KEY_ID=‹awssts›
export AWS_SECRET_ACCESS_KEY=‹awssecret›
export AWS_SESSION_TOKEN=‹awssession›
%%
{
    "AccessKey": {
        "UserName": "⟦user⟧",
        "AccessKeyId": "‹awsid›",
        "Status": "Active",
        "SecretAccessKey": "‹awssecret›"
    }
}
%%
boto3.client("s3", aws_access_key_id="‹awsid›", aws_secret_access_key="‹awssecret›")
%%
https://maps.googleapis.com/maps/api/geocode/json?address=Berlin&key=‹gcp›
%%
$ gcloud auth print-access-token
‹ya29›
%%
{"web": {"client_id": "⟦big⟧-abc.apps.googleusercontent.com", "client_secret": "‹gcpoauth›"}}
%%
az login --service-principal -u ⟦uuid⟧ -p '‹alnum40›' --tenant ⟦uuid⟧
%%
ARM_CLIENT_ID=⟦uuid⟧
ARM_CLIENT_SECRET=‹alnum40›
ARM_TENANT_ID=⟦uuid⟧
%%
doctl auth init -t ‹ocean›
%%
HCLOUD_TOKEN=‹alnum64›
%%
https://⟦app⟧.s3.amazonaws.com/report.pdf?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=‹hex64›
%%
CLOUDFLARE_API_TOKEN=‹alnum40›
CLOUDFLARE_ZONE_ID=⟦md5⟧
%%
curl -H "X-Auth-Email: ops@acme.io" -H "X-Auth-Key: ‹hex40›" https://api.cloudflare.com/client/v4/zones
""",
    "service tokens": r"""
$ gh auth token
‹gho›
%%
git clone https://x-access-token:‹ghs›@github.com/acme/⟦app⟧.git
%%
git remote set-url origin https://oauth2:‹glpat›@gitlab.corp.lan/team/⟦app⟧.git
%%
$ docker login -u gitlab+deploy -p ‹gldt› registry.corp.lan
WARNING! Using --password via the CLI is insecure.
Login Succeeded
%%
curl -u ⟦user⟧:‹bitbucket› https://api.bitbucket.org/2.0/user
%%
npm config set //registry.npmjs.org/:_authToken ‹npm›
%%
twine upload -u __token__ -p ‹pypi› dist/*
%%
echo ‹docker› | docker login -u acme --password-stdin
%%
slack_sdk.WebClient(token="‹xoxb›")
%%
SLACK_APP_TOKEN=‹xapp›
%%
client.run("‹discord›")
%%
https://api.telegram.org/bot‹telegram›/getUpdates
%%
stripe.api_key = "‹stripe›"
%%
STRIPE_SECRET_KEY=‹stripetest›
STRIPE_WEBHOOK_SECRET=‹whsec›
%%
TWILIO_AUTH_TOKEN=‹hex32›
TWILIO_FROM=+15005550006
%%
sg = SendGridAPIClient("‹sendgrid›")
%%
curl -s --user 'api:‹mailgun›' https://api.mailgun.net/v3/mg.acme.io/messages
%%
OPENAI_API_KEY: ‹openai›
%%
client = anthropic.Anthropic(api_key="‹anthropic›")
%%
huggingface-cli login --token ‹hf›
%%
sentry-cli --auth-token ‹sentry› releases list
%%
DD_API_KEY=‹hex32› DD_APP_KEY=‹hex40› datadog-agent run
%%
NEW_RELIC_LICENSE_KEY=‹hex40›
newrelic_user_key: ‹newrelic›
%%
curl -H "Authorization: Bearer ‹grafana›" https://⟦lanhost⟧/api/dashboards/home
%%
$ vault token create
Key                  Value
---                  -----
token                ‹vault›
token_accessor       ⟦md5⟧
token_duration       768h
%%
HEROKU_API_KEY=‹heroku›
%%
X-Shopify-Access-Token: ‹shopify›
%%
wandb login ‹wandb›
wandb: Appending key for api.wandb.ai to your netrc file
%%
ATLASSIAN_API_TOKEN="‹atlassian›"
%%
databricks configure --token  # paste ‹databricks›
%%
{"linear": {"apiKey": "‹linear›"}, "notion": {"token": "‹notion›"}}
%%
MAILCHIMP_API_KEY=‹mailchimp›
""",
    "jwt": r"""
Authorization: Bearer ‹jwt›
%%
{"access_token":"‹jwt›","expires_in":3600,"token_type":"Bearer"}
%%
localStorage.setItem("id_token", "‹jwt›");
%%
decoded token ‹jwt›: sub=⟦num⟧
%%
ws://⟦lanhost⟧/socket?token=‹jwt›
%%
{"refresh_token": "‹b64url86›", "scope": "offline_access"}
""",
    "webhooks": r"""
curl -X POST -H 'Content-type: application/json' --data '{"text":"deployed"}' https://hooks.slack.com/services/‹slackhook›
%%
DISCORD_WEBHOOK=https://discord.com/api/webhooks/⟦big⟧⟦big⟧/‹b64url68›
%%
webhook_url: https://acme.webhook.office.com/webhookb2/⟦uuid⟧@⟦uuid⟧/IncomingWebhook/‹hex32›/⟦uuid⟧
""",
    "otp and recovery": r"""
otpauth://totp/Acme:⟦user⟧?secret=‹otp›&issuer=Acme
%%
TOTP secret: ‹otp›
%%
$ oathtool --totp -b ‹otp› | xclip
%%
Recovery codes (store them safely):
‹recovery›
‹recovery›
‹recovery›
‹recovery›
%%
Unseal Key 1: ‹b64_44›
Unseal Key 2: ‹b64_44›

Initial Root Token: ‹vault›
%%
MFA_SEED=‹otp›
""",
    "credential files": r"""
$ cat ~/.netrc
machine ⟦lanhost⟧
  login ⟦user⟧
  password ‹pw›
%%
machine api.heroku.com login ops@acme.io password ‹uuid›
%%
$ cat ~/.pgpass
⟦lanhost⟧:5432:⟦app⟧:⟦user⟧:‹pw›
%%
//packages.example.org/:_authToken=‹ghp›
@acme:registry=https://packages.example.org
%%
//nexus.corp.lan/repository/npm/:_password="‹b64pw›"
//nexus.corp.lan/repository/npm/:username=⟦user⟧
%%
[pypi]
username = __token__
password = ‹pypi›
%%
[testpypi]
username: ⟦user⟧
password: ‹word›
%%
$ cat ~/.git-credentials
https://⟦user⟧:‹ghp›@github.com
https://⟦user⟧:‹word›@git.corp.lan
%%
users:
- name: ⟦user⟧
  user:
    client-key-data: ‹b64line›‹b64line›‹b64line›
    token: ‹jwt›
%%
$ cat ~/.docker/config.json
{
  "auths": {
    "https://index.docker.io/v1/": {
      "auth": "‹b64basic›"
    }
  }
}
%%
"attributes": {
  "address": "⟦lanhost⟧",
  "engine": "postgres",
  "id": "⟦app⟧-prod",
  "master_password": "‹pw›",
  "port": 5432
}
%%
output "db_password" {
  value = "‹pw›"
}
%%
# terraform.tfvars
region      = "eu-central-1"
db_password = "‹pwshell›"
%%
# group_vars/all.yml
ansible_user: ⟦user⟧
ansible_ssh_pass: ‹pw›
ansible_become_password: ‹pw›
%%
[web]
⟦lanhost⟧ ansible_user=⟦user⟧ ansible_password=‹word›
%%
<com.cloudbees.plugins.credentials.impl.UsernamePasswordCredentialsImpl>
  <id>nexus</id>
  <username>⟦user⟧</username>
  <password>‹pw›</password>
</com.cloudbees.plugins.credentials.impl.UsernamePasswordCredentialsImpl>
%%
<server>
  <id>releases</id>
  <username>⟦user⟧</username>
  <password>‹pw›</password>
</server>
%%
network={
    ssid="Office"
    psk="‹word›"
}
%%
[client]
user=⟦user⟧
password=‹pw›
%%
defaults
auth on
user alerts@acme.io
password ‹pw›
host smtp.acme.io
%%
$ sudo cat /etc/shadow | head -2
root:‹sha512crypt›:19700:0:99999:7:::
daemon:*:19600:0:99999:7:::
%%
$ cat .htpasswd
⟦user⟧:‹apr1›
%%
https_proxy=http://⟦user⟧:‹pw›@proxy.corp.lan:3128
""",
    "shell commands": r"""
$ export ⟦GITHUB_TOKEN|NPM_TOKEN|DEPLOY_KEY|SONAR_TOKEN⟧=‹alnum40› && make deploy
%%
+ export DB_PASSWORD=‹pw›
+ DB_PASSWORD=‹pw#1›
+ ./migrate --host ⟦lanhost⟧
%%
++ API_TOKEN='‹pwshell›'
++ curl -fsS https://⟦lanhost⟧/health
%%
docker run -d --name ⟦app⟧ -e POSTGRES_PASSWORD=‹pw› -e POSTGRES_DB=⟦app⟧ -p 5432:5432 postgres:16
%%
mysql -h ⟦lanhost⟧ -u ⟦user⟧ -p‹alnum20› ⟦app⟧ < dump.sql
%%
mysqldump --user=root --password=‹pw› ⟦app⟧ > dump.sql
%%
sshpass -p '‹pwshell›' ssh -o StrictHostKeyChecking=no ⟦user⟧@⟦lanhost⟧ uptime
%%
openssl rsa -in server.key -passin pass:‹pw› -out plain.key
%%
openssl enc -aes-256-cbc -k ‹pw› -in a.tar -out a.enc
%%
curl -u ⟦user⟧:‹word› https://⟦lanhost⟧/artifactory/api/system/ping
%%
curl -u '⟦user⟧:‹pwshell›' -T ⟦app⟧.tar.gz https://⟦lanhost⟧/repo/
%%
wget --user=⟦user⟧ --password='‹pw›' https://⟦lanhost⟧/⟦app⟧.tgz
%%
PS C:\> $env:⟦AZURE_PAT|API_KEY|DB_PASSWORD⟧ = "‹alnum40›"
%%
$pw = ConvertTo-SecureString "‹pw›" -AsPlainText -Force
%%
ARG NPM_TOKEN=‹npm›
ENV DB_PASSWORD ‹pw›
RUN npm ci
%%
set DB_PASSWORD=‹pw›
echo %DB_HOST%
%%
redis-cli -h ⟦lanhost⟧ -a ‹alnum20› ping
Warning: Using a password with '-a' option on the command line interface may not be safe.
PONG
%%
PGPASSWORD='‹pwshell›' psql -h ⟦lanhost⟧ -U ⟦user⟧ -c '\dt'
%%
helm upgrade ⟦app⟧ ./chart --set image.tag=⟦sha7⟧ --set auth.password=‹pw›
%%
$ echo "⟦user⟧:‹pw›" | sudo chpasswd
%%
net use Z: \\⟦lanhost⟧\share /user:ACME\⟦user⟧ ‹pw›
%%
kubectl create secret generic ⟦app⟧ --from-literal=password='‹pwshell›'
%%
smbclient //⟦lanhost⟧/data -U ⟦user⟧%‹word›
%%
gh secret set DEPLOY_TOKEN --body "‹alnum40›"
%%
$ env | sort
HOME=/root
JIRA_API_TOKEN=‹alnum40›
LANG=C.UTF-8
%%
keytool -importkeystore -srcstorepass ‹word› -deststorepass ‹word› -srckeystore a.jks
%%
ldapsearch -x -H ldap://⟦lanhost⟧ -D cn=admin,dc=acme,dc=io -w ‹pw› -b dc=acme,dc=io
%%
zip -P ‹word› backup.zip *.sql
%%
psexec \\⟦lanhost⟧ -u ACME\admin -p ‹pw› cmd
""",
    "http headers": r"""
> GET /v1/⟦app⟧ HTTP/2
> Host: ⟦lanhost⟧
> X-Api-Key: ‹alnum32›
> Accept: */*
%%
Authorization: ⟦Token|token|ApiKey|Bearer⟧ ‹hex40›
%%
headers = {"X-Auth-Token": "‹alnum40›", "Accept": "application/json"}
%%
fetch(url, { headers: { authorization: `Bearer ‹alnum40›`, "x-request-id": "⟦uuid⟧" } })
%%
-H "⟦apikey|x-functions-key|Ocp-Apim-Subscription-Key|X-Vault-Token⟧: ‹alnum32›"
%%
Proxy-Authorization: Basic ‹b64basic›
%%
requests.get("https://⟦lanhost⟧/me", auth=("⟦user⟧", "‹pw›"))
%%
"Authorization": "GenieKey ‹uuid›"
""",
    "sql": r"""
INSERT INTO users (id, login, password_hash) VALUES (⟦num⟧, '⟦user⟧', '‹bcrypt›');
%%
INSERT INTO `users` (`id`,`login`,`password`) VALUES (1,'⟦user⟧','‹pw›'),(2,'guest','‹pw›');
%%
CREATE USER ⟦user⟧ WITH PASSWORD '‹pw›';
GRANT ALL ON DATABASE ⟦app⟧ TO ⟦user⟧;
%%
ALTER USER 'root'@'localhost' IDENTIFIED BY '‹pw›';
%%
COPY auth_user (id, password, username, is_active) FROM stdin;
1⟦tab⟧‹pbkdf2›⟦tab⟧⟦user⟧⟦tab⟧t
\.
%%
UPDATE accounts SET api_token = '‹alnum40›' WHERE id = ⟦num⟧;
%%
 username | password_hash
----------+--------------
 ⟦user⟧   | ‹argon2›
""",
    "code": r"""
smtp = smtplib.SMTP("⟦lanhost⟧", 587)
smtp.login("⟦user⟧", "‹pw›")
%%
const db = mysql.createConnection({ host: "⟦lanhost⟧", user: "⟦user⟧", password: "‹pw›" });
%%
private static final String ⟦API_KEY|PASSWORD|CLIENT_SECRET⟧ = "‹alnum32›";
%%
-    password = "‹pw›"
+    password = os.environ["DB_PASSWORD"]
%%
conn = psycopg2.connect(host="⟦lanhost⟧", user="⟦user⟧", password="‹pwshell›", dbname="⟦app⟧")
%%
ssh.connect("⟦lanhost⟧", username="⟦user⟧", password="‹word›")
%%
KeyError: 'region'; config was {'host': '⟦lanhost⟧', 'user': '⟦user⟧', 'passwd': '‹pw›', 'db': 3}
%%
Config(user='⟦user⟧', password='‹pw›', timeout=30)
%%
secret := []byte("‹alnum32›")
%%
JWT_SECRET=‹dashed›
%%
app.use(session({ secret: "‹alnum32›", resave: false }));
%%
hmac.new(b"‹alnum32›", payload, hashlib.sha256).hexdigest()
""",
    "personal data": r"""
Customer: ⟦person⟧ <‹mail›>, phone ‹phone›
Ticket: invoice ⟦num⟧ was paid twice
%%
Please refund to IBAN ‹iban›, account holder ⟦person⟧.
%%
Kontoinhaber: ⟦person⟧
IBAN: ‹iban›
%%
name,email,phone
⟦person⟧,‹mail›,‹phone›
⟦person⟧,‹mail›,‹phone›
%%
{"customer": {"name": "⟦person⟧", "email": "‹mail›", "card_number": "‹card›", "exp": "09/28"}}
%%
payment failed: card ‹card› declined (insufficient funds)
%%
Applicant ⟦person⟧, SSN ‹ssn›, born ⟦date⟧
%%
Lieferadresse: ⟦person⟧, ‹address›
%%
You can reach me under ‹usphone› or at ‹mail› after 5 pm. Regards, ⟦person⟧
%%
Numéro de sécurité sociale : ‹nir›
%%
From: ⟦person⟧ <‹mail›>
To: support@acme.io
Subject: wrong address on my order

Hello, please send it to ‹address›. Thanks!
%%
$ psql -c "select email, phone from customers limit 2"
        email         |     phone
----------------------+-----------------
 ‹mail› | ‹phone›
 ‹mail› | ‹phone›
""",
}
BENIGN: dict[str, str] = {
    "git": r"""
diff --git a/src/⟦app⟧/auth.py b/src/⟦app⟧/auth.py
index ⟦sha7⟧..⟦sha7⟧ 100644
--- a/src/⟦app⟧/auth.py
+++ b/src/⟦app⟧/auth.py
@@ -12,7 +12,7 @@ def check(user, password):
-    return verify(password, user.hash)
+    return verify(password, user.password_hash)
%%
$ git log --oneline -4
⟦sha7⟧ rotate tokens every hour
⟦sha7⟧ docs: how to set a password
⟦sha7⟧ fix secret lookup in CI
⟦sha7⟧ bump ⟦app⟧ to ⟦ver⟧
%%
$ git rev-parse HEAD
⟦sha⟧
%%
From https://github.com/acme/⟦app⟧
   ⟦sha7⟧..⟦sha7⟧  main       -> origin/main
 * [new tag]         v⟦ver⟧     -> v⟦ver⟧
%%
tree ⟦sha⟧
parent ⟦sha⟧
gpgsig missing

    auth: drop legacy key derivation
%%
origin	git@github.com:acme/⟦app⟧.git (fetch)
origin	https://gitlab.acme.io/team/⟦app⟧.git (push)
%%
100644 blob ⟦sha⟧    src/token_bucket.py
100644 blob ⟦sha⟧    src/password_form.tsx
%%
[submodule "vendor/⟦app⟧"]
	path = vendor/⟦app⟧
	url = https://github.com/acme/⟦app⟧.git
-⟦sha⟧ vendor/⟦app⟧
""",
    "lock files": r"""
    "node_modules/js-tokens": {
      "version": "⟦ver⟧",
      "resolved": "https://packages.example.org/js-tokens/-/js-tokens-⟦ver⟧.tgz",
      "integrity": "⟦integrity⟧"
    },
%%
[[package]]
name = "secrecy"
version = "⟦ver⟧"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "⟦sha256⟧"
%%
keyring==⟦ver⟧ \
    --hash=⟦pip256⟧ \
    --hash=⟦pip256⟧
%%
token-stream@^⟦ver⟧:
  version "⟦ver⟧"
  integrity ⟦integrity⟧
%%
golang.org/x/crypto v0.⟦num⟧.0 h1:⟦h1⟧
golang.org/x/crypto v0.⟦num⟧.0/go.mod h1:⟦h1⟧
%%
files = [
    {file = "passlib-⟦ver⟧-py2.py3-none-any.whl", hash = "⟦pip256⟧"},
    {file = "passlib-⟦ver⟧.tar.gz", hash = "⟦pip256⟧"},
]
%%
  nixpkgs = {
    rev = "⟦sha⟧";
    sha256 = "sha256-⟦h1⟧";
  };
""",
    "checksums": r"""
⟦sha256⟧  dist/⟦app⟧-⟦ver⟧.tar.gz
⟦sha256⟧  dist/⟦app⟧-⟦ver⟧-py3-none-any.whl
%%
MD5 (⟦app⟧.iso) = ⟦md5⟧
%%
Digest: ⟦pip256⟧
Status: Downloaded newer image for python:3.11-slim
%%
latest: digest: ⟦pip256⟧ size: ⟦big⟧
%%
ETag: "⟦md5⟧"
Last-Modified: ⟦date⟧
%%
 => => naming to docker.io/acme/⟦app⟧:⟦ver⟧
 => => writing image ⟦pip256⟧
%%
outs:
- md5: ⟦md5⟧.dir
  size: ⟦big⟧
  nfiles: ⟦num⟧
  path: data/features
%%
cache key: linux-pip-⟦sha256⟧
Cache restored successfully
%%
<script src="https://cdn.acme.io/app.js" integrity="sha384-⟦b64u384⟧" crossorigin="anonymous"></script>
%%
fingerprint SHA256:⟦fingerprint⟧ ⟦user⟧ on ⟦host⟧ (ED25519)
""",
    "identifiers": r"""
{"trace_id": "⟦md5⟧", "span_id": "⟦sha7⟧a0b1c2d3f", "request_id": "⟦uuid⟧"}
%%
x-request-id: ⟦uuid⟧
x-correlation-id: ⟦uuid⟧
%%
session started run_id=⟦uuid⟧ experiment=⟦num⟧
%%
$ docker ps
CONTAINER ID   IMAGE         STATUS         NAMES
⟦sha7⟧a9c21   redis:7       Up 3 hours     ⟦app⟧-cache-1
%%
pod/⟦app⟧-⟦sha7⟧9d-x7k2p   1/1   Running   0   ⟦num⟧m
%%
"Resource": "arn:aws:lambda:eu-west-1:123456789012:function:⟦app⟧"
%%
traceparent: 00-⟦md5⟧-00f067aa0ba902b7-01
%%
UUID=⟦uuid⟧ /boot ext4 defaults 0 2
%%
vpc-0a1b2c3d4e5f67890 subnet-0f9e8d7c6b5a43210 available ⟦num⟧
%%
tool_call_id: call_⟦num⟧ finished, task ⟦uuid⟧ done
%%
_id: ObjectId("65f1c0ffee⟦sha7⟧abcdef0")
%%
Serial number: ⟦serial⟧, firmware ⟦ver⟧
%%
ISBN ⟦isbn⟧, 2nd edition
%%
Order no. ⟦big⟧ contains article ⟦serial⟧ twice
%%
doi:10.1145/⟦big⟧.⟦big⟧ and arXiv:2403.⟦port⟧v2
""",
    "embedded data": r"""
<img alt="logo" src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAYAAAAf8/9hAAAA⟦b64line⟧⟦b64line⟧">
%%
src: url(data:font/woff2;base64,d09GMgABAAAAAA⟦b64line⟧⟦b64line⟧) format("woff2");
%%
!function(e,t){"object"==typeof exports?module.exports=t():e.key=t()}(this,(function(){var n=⟦num⟧;return n}));
%%
//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoiYXBwLmpzIiwic291cmNlcyI6WyJhcHAudHMiXX0=
//# build ⟦num⟧
%%
00000000: ⟦hexbytes⟧  .ELF............
00000010: ⟦hexbytes⟧  ................
00000020: ⟦hexbytes⟧  ................
%%
"cell_type": "code",
"outputs": [{"data": {"image/png": "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzk⟦b64line⟧"}}]
%%
<path d="M12.5 3.⟦num⟧c-1.⟦num⟧ 0-2.⟦num⟧.9-2.4 2v4.⟦num⟧h4.8zM7.1 ⟦num⟧.5l3.⟦num⟧-2.2z" fill="#3a5f⟦num⟧"/>
%%
_="AAAA,CAAC,CAAC,SAAS,GAAG,CAAC;",mappings=⟦num⟧
%%
$ xxd -l 32 model.safetensors
00000000: ⟦hexbytes⟧  ........{"__meta
00000010: ⟦hexbytes⟧  data__":{"format
""",
    "code without secrets": r"""
password = os.environ["⟦DB_PASSWORD|SMTP_PASSWORD|ADMIN_PASS⟧"]
timeout = ⟦num⟧
%%
import getpass
password = getpass.getpass("Password for ⟦user⟧: ")
%%
def reset_password(user: User, new_password: str, *, token: str | None = None) -> bool:
    '''Return whether the token was valid (see #⟦num⟧).'''
    return user.set_password(new_password)
%%
const token = process.env.⟦GITHUB_TOKEN|NPM_TOKEN|API_TOKEN⟧;
if (!token) throw new Error("token is missing");
%%
api_key: str = Field(default=..., description="the key of the ⟦app⟧ service")
secret: SecretStr
max_tokens: int = ⟦num⟧
%%
if password != confirm_password:
    raise ValidationError("passwords do not match")  # ticket ⟦num⟧
%%
token = request.headers.get("Authorization", "").removeprefix("Bearer ")
user_⟦num⟧ = decode(token)
%%
public String getPassword() { return this.password; }
public void setPassword(String password) { this.password = password; } // v⟦ver⟧
%%
const hash = await bcrypt.hash(password, ⟦num⟧);
user.passwordHash = hash;
%%
for token in tokenizer.tokenize(text)[:⟦num⟧]:
    counts[token] += 1
%%
secret_key = secrets.token_urlsafe(⟦num⟧)
api_token = generate_token(length=⟦num⟧)
%%
password: ${{ secrets.⟦DB_PASSWORD|NPM_TOKEN|DEPLOY_KEY⟧ }}
node-version: ⟦num⟧
%%
env:
  - name: DB_PASSWORD
    valueFrom:
      secretKeyRef:
        name: ⟦app⟧-db
        key: password
%%
export TOKEN=$(vault kv get -field=token secret/⟦app⟧)
echo "build ⟦num⟧"
%%
curl -H "Authorization: Bearer $⟦TOKEN|GITHUB_TOKEN|CI_JOB_TOKEN⟧" https://⟦host⟧/v1/⟦app⟧
%%
docker login -u "$CI_REGISTRY_USER" -p "$CI_REGISTRY_PASSWORD" registry.acme.io:⟦port⟧
%%
DATABASE_URL=postgres://${DB_USER}:${DB_PASSWORD}@⟦host⟧:5432/⟦app⟧
%%
variable "db_password" {
  type      = string
  sensitive = true
}
# module ⟦ver⟧
%%
password = var.db_password
instance = "⟦host⟧"
%%
ansible_become_password: "{{ vault_become_password }}"
retries: ⟦num⟧
%%
<input type="password" name="password" id="pw-⟦num⟧" autocomplete="current-password" required>
%%
struct Credentials { password: String, token: Option<String>, expires: u64 } // ⟦ver⟧
%%
func (c *Client) SetToken(token string) { c.token = token } // since ⟦ver⟧
%%
CREATE TABLE users_⟦num⟧ (id serial PRIMARY KEY, login text, password_hash text NOT NULL, api_key varchar(64));
%%
SELECT login, password_hash IS NULL AS missing FROM users WHERE id = ⟦num⟧;
%%
parser.add_argument("--password", help="password of the database user", default=None)  # ⟦ver⟧
parser.add_argument("--token-file", type=Path)
%%
assert response.json() == {"password": ["This field is required."], "code": ⟦num⟧}
%%
pad_token = tokenizer.eos_token
eos_token_id = ⟦num⟧
bos_token: "<s>"
%%
key = lambda item: item.score
best = max(items, key=key)[:⟦num⟧]
%%
primary_key = "id"
foreign_key = "customer_id"
sort_key = "created_at"
limit = ⟦num⟧
%%
cache.set(key="user:profile:⟦num⟧", value=profile, timeout=⟦num⟧)
%%
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": ⟦num⟧}},
]
%%
read -rsp "Password: " PASSWORD
attempt=⟦num⟧
%%
aws secretsmanager get-secret-value --secret-id prod/⟦app⟧/db --query SecretString --output text | jq -r .username
%%
$cred = Get-Credential -UserName ⟦user⟧ -Message "password for ⟦host⟧"
%%
type Token = { kind: "identifier" | "number"; value: string; line: number }; // ⟦ver⟧
""",
    "placeholders": r"""
API_KEY=<your-api-key>
PORT=⟦port⟧
%%
password: ***
user: ⟦user⟧
%%
Authorization: Bearer <token>
Host: ⟦host⟧
%%
export OPENAI_API_KEY="YOUR_API_KEY"
export MODEL=small-⟦num⟧b
%%
DB_PASSWORD=
DB_HOST=⟦host⟧
%%
"password": null,
"retries": ⟦num⟧
%%
  token: [REDACTED]
  id: ⟦num⟧
%%
postgresql://USER:PASSWORD@HOST:PORT/DATABASE
see page ⟦num⟧
%%
curl -u <user>:<password> https://⟦host⟧/api
%%
password=********
attempts=⟦num⟧
%%
secret_key: "{{ .Values.secretKey }}"
replicas: ⟦num⟧
%%
MYSQL_PASSWORD=%MYSQL_PASSWORD%
REM step ⟦num⟧
%%
::add-mask::***
Run deploy --token *** --env prod-⟦num⟧
%%
STRIPE_KEY=sk_test_xxxxxxxxxxxxxxxxxxxxxxxx
SEATS=⟦num⟧
""",
    "documentation": r"""
## Authentication

Pass the API key in the `X-Api-Key` header. Keys can be rotated under *Settings → Tokens*; ⟦num⟧ keys per account are allowed.
%%
The password must have at least ⟦num⟧ characters, one digit and one special character.
%%
Secrets are never written to the log. See `docs/secrets.md` and section ⟦num⟧ for how tokens are stored.
%%
If you have forgotten your password, click on "Forgot password" and follow the link in the mail (valid for ⟦num⟧ minutes).
%%
--token-ttl DURATION   lifetime of an issued token (default: ⟦num⟧m)
--password-file PATH   read the password from a file
%%
A JWT has three parts: header, payload and signature. It expires after ⟦num⟧ seconds.
%%
| option | type | description |
|---|---|---|
| `password` | string | password of the database user |
| `token` | string | token for the registry |
| `limit` | int | default ⟦num⟧ |
%%
The private key stays on the server; only the public key is copied to ⟦host⟧.
%%
Passwords are hashed with bcrypt (cost ⟦num⟧); API tokens are stored as SHA-256.
%%
note: two-factor codes change every 30 seconds, recovery codes can be used once; ⟦num⟧ users have turned it on
%%
Das Passwort muss mindestens ⟦num⟧ Zeichen haben und darf nicht im Wörterbuch stehen.
%%
Le mot de passe est obligatoire et doit contenir au moins ⟦num⟧ caractères.
%%
La contraseña es obligatoria y debe cambiarse cada ⟦num⟧ días.
""",
    "messages about secrets": r"""
fatal: Authentication failed for 'https://github.com/acme/⟦app⟧.git/'
%%
psql: error: connection to server at "⟦host⟧" (⟦ip⟧), port 5432 failed: FATAL:  password authentication failed for user "⟦user⟧"
%%
error: the server rejected the token: expired at ⟦date⟧T⟦time⟧Z
%%
[sudo] password for ⟦user⟧:
Sorry, try again.
%%
⟦user⟧@⟦host⟧'s password:
Permission denied, please try again.
%%
WARN  token is missing, using anonymous access (limit ⟦num⟧ requests an hour)
%%
HTTP/1.1 401 Unauthorized
WWW-Authenticate: Bearer realm="⟦app⟧", error="invalid_token"
%%
tests/test_auth.py::test_password_is_hashed PASSED [ ⟦num⟧%]
tests/test_auth.py::test_token_expires_after_an_hour PASSED
tests/test_auth.py::test_secret_key_is_required FAILED
%%
AssertionError: password too short: ⟦num⟧ < 12
%%
SyntaxError: Unexpected token '<', "<!DOCTYPE "... is not valid JSON at position ⟦num⟧
%%
Setting pad_token_id to eos_token_id:⟦num⟧ for open-end generation.
%%
KeyError: 'api_key'
  File "/srv/⟦app⟧/config.py", line ⟦num⟧, in load
%%
passwd: password updated successfully
uid=⟦num⟧(⟦user⟧)
%%
User: what is a good password policy?
Assistant: Use long passphrases, a manager and a second factor; ⟦num⟧ days of forced rotation do not help.
%%
level=warning msg="secret not found" name=⟦app⟧-tls namespace=prod retry=⟦num⟧
%%
Enter passphrase for key '/home/⟦user⟧/.ssh/id_ed25519':
Identity added: ⟦num⟧
""",
    "logs": r"""
⟦ip⟧ - - [04/Mar/2026:⟦time⟧ +0000] "GET /static/app.⟦sha7⟧.js HTTP/1.1" 200 ⟦big⟧ "-" "Mozilla/5.0 (X11; Linux x86_64)"
%%
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/⟦app⟧/core.py", line ⟦num⟧, in run
    result = self.step(batch)
ValueError: expected shape (⟦num⟧, 768), got (⟦num⟧, 512)
%%
java.lang.NullPointerException: Cannot invoke "Token.getValue()" because "token" is null
	at io.acme.⟦app⟧.Parser.next(Parser.java:⟦num⟧)
	at io.acme.⟦app⟧.Main.main(Main.java:⟦num⟧)
%%
Listening on http://127.0.0.1:⟦port⟧ (pid ⟦num⟧)
%%
PING ⟦host⟧ (⟦ip⟧) 56(84) bytes of data.
64 bytes from ⟦ip⟧: icmp_seq=1 ttl=64 time=⟦float⟧ ms
%%
[⟦date⟧T⟦time⟧.⟦num⟧Z] deploy v⟦ver⟧ to ⟦host⟧ took ⟦float⟧s
%%
eth0: link/ether 02:42:ac:11:00:⟦hex2⟧ brd ff:ff:ff:ff:ff:ff
inet6 ::1/128 scope host metric ⟦hex2⟧⟦hex2⟧
%%
thread 'main' panicked at src/lexer.rs:⟦num⟧:13: unexpected token `}`
%%
goroutine ⟦num⟧ [running]:
main.(*Server).Serve(0xc0001⟦hex2⟧000, {0x7f⟦hex2⟧2c0, 0x1})
%%
⟦esc⟧[32mPASS⟦esc⟧[0m src/auth/password.test.ts (⟦float⟧ s)
⟦esc⟧[31mFAIL⟦esc⟧[0m src/auth/token.test.ts
%%
$ nslookup ⟦host⟧
Server:  127.0.0.53
Address: 127.0.0.53#53
Name: ⟦host⟧
Address: ⟦ip⟧
%%
kernel: [⟦num⟧.⟦big⟧] CPU: 3 PID: ⟦num⟧ Comm: ⟦app⟧ Not tainted 6.1.0-⟦num⟧-amd64
RIP: 0010:__x64_sys_read+0x1a/0x20
""",
    "machine learning": r"""
loading Qwen/Qwen2.5-⟦num⟧B-Instruct-AWQ with tokenizer sentencepiece vocab_size=⟦big⟧
%%
learning_rate: 3.0e-5
per_device_train_batch_size: ⟦num⟧
max_new_tokens: ⟦num⟧
lora_r: 16
%%
step,reward,kl,entropy
⟦num⟧,⟦float⟧,⟦float⟧,⟦float⟧
⟦num⟧,⟦float⟧,⟦float⟧,⟦float⟧
%%
{"prompt_tokens": ⟦num⟧, "completion_tokens": ⟦num⟧, "total_tokens": ⟦big⟧}
%%
model.layers.⟦num⟧.self_attn.q_proj.weight torch.Size([4096, 4096]) torch.bfloat16
model.layers.⟦num⟧.self_attn.k_proj.weight torch.Size([1024, 4096]) torch.bfloat16
%%
'input_ids': [⟦num⟧, ⟦num⟧, ⟦num⟧, ⟦num⟧, ⟦num⟧, 128009], 'labels': [-100, -100, ⟦num⟧]
%%
special_tokens: {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "n": ⟦num⟧}
%%
seed=⟦num⟧ checkpoint=outputs/run-⟦date⟧/checkpoint-⟦num⟧/model.safetensors
""",
    "science and measures": r"""
>seq_⟦num⟧ Homo sapiens chromosome ⟦num⟧
⟦dna⟧
⟦dna⟧
%%
>sp|P0⟦num⟧|HBA_HUMAN
⟦protein⟧
⟦protein⟧
%%
\begin{equation}\label{eq:key⟦num⟧}
  \mathcal{L}(\theta) = -\mathbb{E}_{q}\left[\log p_\theta(x)\right] + \beta D_{KL}
\end{equation}
%%
time,temperature,humidity,pressure
⟦time⟧,21.⟦num⟧,45.2,1013.⟦num⟧
⟦time⟧,21.⟦num⟧,45.0,1013.⟦num⟧
%%
ATOM   ⟦num⟧  CA  ALA A  ⟦num⟧      11.104   6.134  -6.504  1.00  0.00           C
%%
InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12/h2-5H,1H3,(H,11,12) ⟦float⟧
InChIKey=BSYNRYMUTXBXSQ-UHFFFAOYSA-N
%%
rs⟦big⟧	chr⟦num⟧	⟦big⟧	A	G	⟦float⟧
""",
    "public keys": r"""
ssh-rsa ⟦sshrsa⟧ ⟦user⟧ on ⟦host⟧
%%
$ cat ~/.ssh/id_ed25519.pub
ssh-ed25519 ⟦ed25519⟧ ⟦user⟧ on ⟦host⟧
%%
⟦host⟧ ssh-ed25519 ⟦ed25519⟧
%%
-----BEGIN CERTIFICATE-----
⟦b64cert⟧
⟦b64cert⟧
⟦b64cert⟧
-----END CERTIFICATE-----
%%
-----BEGIN PUBLIC KEY-----
⟦b64cert⟧
⟦b64cert⟧
-----END PUBLIC KEY-----
%%
$ ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
256 SHA256:⟦fingerprint⟧ root on ⟦host⟧ (ED25519)
%%
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUM⟦b64line⟧⟦b64line⟧
    server: https://⟦host⟧:6443
%%
{"keys": [{"kty": "RSA", "kid": "⟦uuid⟧", "use": "sig", "alg": "RS256", "n": "⟦b64url342⟧", "e": "AQAB"}]}
%%
subject=CN = ⟦host⟧
issuer=C = US, O = Let's Encrypt, CN = R11
notAfter=Jun  4 10:00:00 2026 GMT
serial=04⟦md5⟧
""",
    "paths and addresses": r"""
https://github.com/acme/⟦app⟧/blob/⟦sha⟧/src/tokens/refresh_token.ts#L⟦num⟧
%%
/var/lib/docker/overlay2/⟦sha256⟧/merged/etc/passwd
%%
s3://acme-models/⟦app⟧/⟦date⟧/checkpoint-⟦num⟧.pt
%%
http://localhost:⟦port⟧/login?next=/account/password/change/
%%
/nix/store/0c1ly1l8k2qb⟦sha7⟧p3k0vj9m4xg7w5d-openssl-⟦ver⟧/bin/openssl
%%
rsync -av ./secrets/README.md ⟦user⟧@⟦host⟧:/srv/⟦app⟧/docs/
%%
scp -P ⟦port⟧ build.tar.gz ⟦user⟧@⟦host⟧:/tmp/⟦app⟧-⟦ver⟧/
%%
https://⟦host⟧/search?q=reset+password&page=⟦num⟧&sort=key
%%
redis://localhost:6379/⟦num⟧
amqp://127.0.0.1:5672
postgres:///⟦app⟧
%%
docker pull registry.acme.io/team/⟦app⟧@⟦pip256⟧
%%
https://www.youtube.com/watch?v=dQw4w9WgXcQ&t=⟦num⟧s
%%
C:\Users\⟦user⟧\AppData\Local\Programs\Python\Python311\Lib\site-packages\keyring\core.py:⟦num⟧
""",
    "schemas and configuration": r"""
{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
 "properties": {"password": {"type": "string", "minLength": ⟦num⟧}, "token": {"type": "string"}},
 "required": ["password"]}
%%
components:
  securitySchemes:
    ApiKeyAuth: {type: apiKey, in: header, name: X-API-Key}
  version: ⟦ver⟧
%%
services:
  ⟦app⟧:
    image: acme/⟦app⟧:⟦ver⟧
    ports: ["⟦port⟧:8080"]
    secrets: [db_password]
secrets:
  db_password:
    file: ./db_password.txt
%%
location /api/token {
    proxy_pass http://127.0.0.1:⟦port⟧;
    proxy_set_header Authorization $http_authorization;
}
%%
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxAuthTries ⟦num⟧
%%
message LoginRequest { string user = 1; string password = 2; string otp_token = ⟦num⟧; }
%%
- run: npm ci
- uses: actions/checkout@⟦sha⟧ # v4
- run: make test TOKEN_LIMIT=⟦num⟧
%%
ssl_certificate_key /etc/ssl/private/⟦app⟧.key;
ssl_session_timeout ⟦num⟧m;
%%
key_columns: [customer_id, month]
partition_key: region
shards: ⟦num⟧
%%
passwordMinLength=⟦num⟧
tokenExpirySeconds=⟦num⟧
secretRotationDays=⟦num⟧
%%
max_tokens = ⟦num⟧
token_type = "bearer"
auth_method = "oauth2"
password_policy = "strict"
""",
    "tables without secrets": r"""
| file | tokens | cost |
|---|---|---|
| auth.py | ⟦num⟧ | ⟦float⟧ |
| password_form.tsx | ⟦num⟧ | ⟦float⟧ |
%%
NAME             TYPE     DATA   AGE
⟦app⟧-tls        Opaque   2      ⟦num⟧d
default-token    Opaque   3      ⟦num⟧d
%%
 table_name | column_name   | data_type
------------+---------------+-----------
 users      | password_hash | text
 users      | api_key       | varchar
(⟦num⟧ rows)
%%
package     installed  latest
pyjwt       ⟦ver⟧      ⟦ver⟧
passlib     ⟦ver⟧      ⟦ver⟧
secretstorage ⟦ver⟧    ⟦ver⟧
%%
user,password_set,last_login
⟦user⟧,true,⟦date⟧
admin,false,⟦date⟧
%%
PID    USER     %CPU  COMMAND
⟦num⟧  root     0.3   /usr/sbin/sshd -D
⟦num⟧  ⟦user⟧   1.2   vault server -config=/etc/vault.hcl
""",
    "prose": r"""
今天我们修复了登录页面的问题，密码重置功能已经可以正常使用。版本 ⟦ver⟧ 将于下周发布。
%%
Мы исправили ошибку в модуле авторизации: пароль теперь проверяется на сервере. Версия ⟦ver⟧.
%%
Die Tests laufen jetzt durch; der Schlüssel zum Erfolg war die kleinere Batchgröße (⟦num⟧ statt 512).
%%
Le jeton expire trop tôt, j'ai donc porté la durée à ⟦num⟧ minutes et relancé les tests.
%%
El equipo revisó el código clave por clave y no encontró errores en los ⟦num⟧ casos.
%%
I checked the parser: it reads one token at a time, so the secret of its speed is the ⟦num⟧ byte buffer.
%%
The key insight is that the password check runs before the token check; moving it saved ⟦num⟧ ms.
%%
请在配置文件中设置端口 ⟦port⟧，然后重新启动服务。
%%
Bitte ändern Sie Ihr Passwort bis zum ⟦date⟧. Der Link dazu steht im Intranet.
%%
Ho aggiornato la pagina della password: ora mostra ⟦num⟧ suggerimenti.
%%
Paris, ⟦date⟧. Le prix est de ⟦num⟧ euros; la clé du local est à l'accueil.
%%
Call the API with your key, wait for the token, then pass the token on. It took ⟦float⟧ seconds here.
""",
}


def encode(text: str, how: str) -> str:
    """Return the text in the named encoding."""
    if how == "url":
        return urllib.parse.quote(text, safe="")
    if how == "urlall":
        return "".join(f"%{byte:02X}" for byte in text.encode())
    if how == "html":
        return html.escape(text, quote=True)
    if how == "htmlall":
        return "".join(f"&#{ord(c)};" for c in text)
    if how == "u":
        return "".join(f"\\u{ord(c):04x}" for c in text)
    if how == "x":
        return "".join(f"\\x{ord(c):02x}" for c in text)
    if how == "yaml":  # YAML's single quotes
        return text.replace("'", "''")
    raise KeyError(how)


def wrapped(text: str, secrets: list[str]) -> tuple[str, list[str]]:
    """Break the lines at the terminal's width; a secret over a break becomes its pieces."""
    lines, pieces = [], []
    for line in text.split("\n"):
        cuts = list(range(0, max(len(line), 1), TERMINAL_COLUMNS))
        lines += [line[cut : cut + TERMINAL_COLUMNS] for cut in cuts]
        for secret in secrets:
            start = line.find(secret)
            if start >= 0:
                end = start + len(secret)
                edges = [start, *(cut for cut in cuts if start < cut < end), end]
                pieces += [line[a:b] for a, b in itertools.pairwise(edges) if b - a >= SHORTEST_PIECE]
    return "\n".join(lines), pieces


def render(template: str, rng: random.Random) -> tuple[str, list[str]]:
    """Return the text of a template and the secrets in it, in their order."""
    values: dict[str, str] = {}
    secrets: list[str] = []

    def secret(match: re.Match[str]) -> str:
        name, _, part = match[1].partition("/")
        name, _, how = name.partition("!")
        kind = name.partition("#")[0]
        value = values.get(name) or SECRET[kind](rng)
        if "#" in name:
            values[name] = value
        value = encode(value, how) if how else value
        if part:
            middle = len(value) // 2
            value = value[:middle] if part == "1" else value[middle:]
        if value not in secrets:
            secrets.append(value)
        return value

    def filling(match: re.Match[str]) -> str:
        return rng.choice(match[1].split("|")) if "|" in match[1] else FILLING[match[1]](rng)

    text = re.sub(r"⟦([^⟧]*)⟧", filling, template)
    return re.sub(r"‹([^›]*)›", secret, text), secrets


def surrounded(text: str, rng: random.Random) -> str:
    """Put harmless lines of a log before and after the text."""
    before = [render(rng.choice(NOISE), rng)[0] for _ in range(rng.randrange(4))]
    after = [render(rng.choice(NOISE), rng)[0] for _ in range(rng.randrange(4))]
    return "\n".join([*before, text, *after])


def carried(text: str, secrets: list[str], rng: random.Random) -> tuple[str, list[str]]:
    """Return the text as is, with a time before each line, or as the JSON of a tool's message."""
    way = rng.random()
    if way < 0.08:
        day = f"2026-0{rng.randrange(1, 9)}-1{rng.randrange(9)}T0{rng.randrange(9)}:1{rng.randrange(9)}"
        lines = [f"{day}:{i % 60:02d}.{rng.randrange(10**6):06d}Z {line}" for i, line in enumerate(text.split("\n"))]
        return "\n".join(lines), secrets
    if way < 0.16:
        message = {"role": "tool", "tool_call_id": f"call_{rng.randrange(100)}", "content": text}
        return json.dumps(message, ensure_ascii=False), [json.dumps(s, ensure_ascii=False)[1:-1] for s in secrets]
    return text, secrets


def cases(templates: dict[str, str], variants: tuple[int, int], rng: random.Random) -> list[dict]:
    result: list[dict] = []
    seen = set()
    turn = itertools.cycle(variants)
    for category, block in templates.items():
        for template in block.strip("\n").split("\n%%\n"):
            flag, _, rest = template.partition("\n")
            body = rest if flag in ("@wrap", "@bare") else template
            for _ in range(next(turn)):
                text, secrets = render(body, rng)
                if flag == "@wrap":
                    text, secrets = wrapped(text, secrets)
                if flag != "@bare":
                    text = surrounded(text, rng)
                    text, secrets = carried(text, secrets, rng)
                if text not in seen:
                    seen.add(text)
                    result.append({"category": category, "text": text, "secrets": secrets})
    return result


def corpus() -> list[dict]:
    """Return every case as `category`, `text` and `secrets`; a harmless case has no secrets."""
    rng = random.Random(SEED)
    return cases(POSITIVE, VARIANTS["positive"], rng) + cases(BENIGN, VARIANTS["benign"], rng)
