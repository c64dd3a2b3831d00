# ruff: noqa: E501
r"""Secrets as terminals, encodings, tables and people disguise them, and benign texts under the same disguises.

`secrets_corpus` writes secrets plainly in many formats. Here the same kinds of secrets are coloured, wrapped, concatenated,
escaped, encoded, laid out in columns, or told in several languages. All is drawn by a seeded generator.
"""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from urllib.parse import quote

from secrets_corpus import (
    ALNUM,
    BASE64,
    HEX,
    TOKENS,
    UPPER,
    URLSAFE,
    Draw,
    a_uuid,
    card,
    iban,
    jwt,
    look_alikes,
    mail,
    pem,
    phone,
    simple,
    some,
    ssn,
)

Sample = tuple[str, str, list[str]]
"""Category, text, and the substrings that must go: none of a benign text."""
Hidden = tuple[str, list[str]]
Place = Callable[[Draw], Hidden | str]

ESC = "\x1b"


def token(draw: Draw) -> str:
    """A token of a known format without dots, such that it reads as one word."""
    name = draw.choice(
        ["github", "gitlab", "openai", "anthropic", "huggingface", "npm", "stripe", "groq", "notion", "digitalocean"]
    )
    return TOKENS[name](draw)


def strong(draw: Draw) -> str:
    """A password that a generator makes."""
    return some(draw, ALNUM, 9) + draw.choice("!#^*+~") + some(draw, ALNUM, 5)


WORDS = ("sunflower", "dragonfly", "moonlight", "starfish", "blackbird", "pineapple", "waterfall", "butterfly")


def lettered(draw: Draw) -> str:
    """A password of letters alone."""
    drawn = "".join(draw.choice(string.ascii_letters) for _ in range(draw.randrange(9, 16)))
    return draw.choice(
        [
            drawn,
            draw.choice(WORDS) + draw.choice(WORDS),
            draw.choice(WORDS).capitalize() + draw.choice(WORDS).capitalize(),
        ]
    )


def colour(draw: Draw) -> str:
    return ESC + draw.choice(
        ["[31m", "[1;32m", "[0;33m", "[38;5;208m", "[38;2;12;200;8m", "[1m", "[4m", "[7m", "[01;31m" + ESC + "[K"]
    )


RESET = (ESC + "[0m", ESC + "[m", ESC + "[39m", ESC + "[m" + ESC + "[K", ESC + "(B" + ESC + "[m")


def painted(draw: Draw, text: str) -> str:
    return colour(draw) + text + draw.choice(RESET)


def written(text: str, how: int) -> str:
    """The same colours as a log, a JSON text or a shell writes them."""
    if how == 0:
        return text
    return text.replace(ESC, ("", r"\u001b", r"\x1b", r"\033", r"\e", "^[", r"\u001B")[how])


def split(draw: Draw, secret: str, pieces: int = 2) -> list[str]:
    cuts = sorted(draw.sample(range(3, len(secret) - 2), pieces - 1))
    return [secret[low:high] for low, high in zip([0, *cuts], [*cuts, len(secret)], strict=True)]


def coloured(draw: Draw) -> Iterator[Hidden]:
    for how in range(7):
        secret = token(draw)
        yield written(f"{painted(draw, 'GITHUB_TOKEN')}={painted(draw, secret)}", how), [secret]
        secret = strong(draw)
        yield written(f"{painted(draw, 'DB_PASSWORD')}={painted(draw, secret)}", how), [secret]
        secret = strong(draw)
        yield written(f"  {painted(draw, 'password')}{painted(draw, ':')} {painted(draw, secret)}", how), [secret]
        secret = strong(draw)
        yield (
            written(f"{painted(draw, chr(34) + 'password' + chr(34))}: {painted(draw, json.dumps(secret))},", how),
            [secret],
        )
        secret = token(draw)
        one, two = split(draw, secret)
        yield written(f"config.py:3:key = '{one}{painted(draw, two)}'", how), [one, two]
        one, two = split(draw, secret := token(draw))
        yield written(f"grep: {painted(draw, one)}{two}", how), [one, two]
        secret = strong(draw)
        yield written(f"postgres://app:{painted(draw, secret)}@{painted(draw, 'db.acme.io')}:5432/app", how), [secret]
        secret = key = some(draw, ALNUM, 40)
        yield written(f"-H {painted(draw, 'X-Api-Key')}: {painted(draw, key)}", how), [secret]
        secret = jwt(draw)
        yield written(f"{painted(draw, 'Authorization')}: Bearer {painted(draw, secret)}{ESC}[K", how), [secret]
        secret = strong(draw)
        yield (
            written(f"{colour(draw)}export {colour(draw)}SMTP_PASS{RESET[0]}={colour(draw)}'{secret}'{RESET[0]}", how),
            [secret],
        )
        secret = card(draw)
        yield written(f"card {painted(draw, secret)} was charged", how), [secret]
        secret = mail(draw)
        yield written(f"user {painted(draw, secret)} signed in", how), [secret]


def invisible(draw: Draw) -> Iterator[Hidden]:
    for mark in ("\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\x08 \x08", "\x00"):
        secret = token(draw)
        one, two = split(draw, secret)
        yield f"the key is {one}{mark}{two}", [one, two]
    secret = strong(draw)
    yield f"password{chr(0x200B)}: {secret}", [secret]
    secret = strong(draw)
    yield f"password\u00a0:\u00a0{secret}", [secret]
    secret = strong(draw)
    yield f"**Password:** {secret}", [secret]
    secret = strong(draw)
    yield f"**Password**: `{secret}`", [secret]
    secret = strong(draw)
    yield f"- __password__: **{secret}**", [secret]
    secret = strong(draw)
    yield f"<b>Password:</b> {secret}<br>", [secret]
    secret = strong(draw)
    yield f"<span class=k>password</span><span class=o>=</span><span class=s>{secret}</span>", [secret]
    secret = strong(draw)
    yield f"<td>password</td><td>{secret}</td>", [secret]


def wrapped_at(text: str, width: int, lead: str = "") -> str:
    return ("\n" + lead).join(text[at : at + width] for at in range(0, len(text), width))


def torn(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        for pieces in (2, 3):
            parts = split(draw, token(draw), pieces)
            quotes = draw.choice("'\"")
            for glue in (
                " + ",
                " +\n    ",
                " \\\n    ",
                "\n    ",
                " . ",
                " & ",
                " .. ",
                " ~ ",
                " || ",
                " <> ",
                "",
                " ++ ",
            ):
                between = quotes + glue + quotes
                yield f"key = {quotes}{between.join(parts)}{quotes}", parts
            yield f"curl -H 'Authorization: Bearer {(chr(92) + chr(10)).join(parts)}' https://api.acme.io/v1/me", parts
            yield f"deploy --token {(chr(92) + chr(10)).join(parts)} --region eu", parts
            yield f"key = ''.join(['{(chr(39) + ', ' + chr(39)).join(parts)}'])", parts
            yield f'key := "{(chr(34) + " +" + chr(10) + chr(9) + chr(34)).join(parts)}"', parts
            yield f'$key = "{("`" + chr(10)).join(parts)}"', parts
        secret = strong(draw) + strong(draw)
        parts = split(draw, secret)
        yield f"password = '{parts[0]}' + '{parts[1]}'", parts
        yield f'"password": "{parts[0]}" +\n  "{parts[1]}",', parts
        yield f"password = ('{parts[0]}'\n            '{parts[1]}')", parts
        yield f"export DB_PASSWORD={parts[0]}\\\n{parts[1]}", parts
        yield f'String password = "{parts[0]}"\n    + "{parts[1]}";', parts
        for width in (72, 76, 80, 100):
            secret = jwt(draw)
            text = wrapped_at(f"2026-03-01 10:11:12 DEBUG auth.client got bearer {secret} from the server", width)
            yield text, _pieces(text, secret)
            secret = TOKENS["openai project"](draw)
            text = wrapped_at(f"    OPENAI_API_KEY={secret}", width)
            yield text + "\nPATH=/usr/bin\n", _pieces(text, secret)
            secret = token(draw)
            text = wrapped_at(
                "x" * (width - 30 - len("key ")) + f" key {secret} is the one that the client sends", width
            )
            yield text, _pieces(text, secret)
            secret = some(draw, ALNUM, 64)
            text = wrapped_at(" " * (width - 60) + f'"client_secret": "{secret}", "scope": "all"', width)
            yield text, _pieces(text, secret)
        secret = TOKENS["anthropic"](draw)
        yield f"> the key is {secret[:50]}\n> {secret[50:]}\n> and it works", [secret[:50], secret[50:]]
        secret = TOKENS["anthropic"](draw)
        yield f"# {secret[:60]}\n# {secret[60:]}\n", [secret[:60], secret[60:]]
        secret = TOKENS["sendgrid"](draw)
        yield f"token: >-\n  {secret[:30]}\n  {secret[30:]}\n", [secret[:30], secret[30:]]
        secret = jwt(draw)
        soft = "=\n".join([secret[:60], secret[60:]])
        yield f"Content-Transfer-Encoding: quoted-printable\n\nToken=3D{soft}\n", [secret[:60], secret[60:]]


def _pieces(text: str, secret: str) -> list[str]:
    """The secret as the lines of the text hold it; of a piece of fewer than six characters nothing is asked."""
    begin = next(at for at in range(len(text)) if _spans(text, at, secret))
    held = text[begin : _spans(text, begin, secret)]
    return [line for line in held.split("\n") if len(line) > 5]


def _spans(text: str, at: int, secret: str) -> int:
    for letter in secret:
        while at < len(text) and text[at] == "\n":
            at += 1
        if text[at : at + 1] != letter:
            return 0
        at += 1
    return at


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def encoded(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        secret = strong(draw)
        hidden = b64(f"DB_HOST=db.acme.io\nDB_PASSWORD={secret}\nDB_NAME=app\n")
        yield f"$ base64 .env\n{hidden}\n", [hidden]
        yield f"$ base64 .env\n{wrapped_at(hidden, 76)}\n", hidden and [wrapped_at(hidden, 76)]
        hidden = b64(f"export API_TOKEN={token(draw)}\n")
        yield f"echo {hidden} | base64 -d >> ~/.bashrc", [hidden]
        hidden = b64(token(draw))
        yield f"token.txt: {hidden}", [hidden]
        account = json.dumps(
            {
                "type": "service_account",
                "project_id": "acme",
                "private_key": pem(draw),
                "client_email": "ci@acme.iam.gserviceaccount.com",
            }
        )
        hidden = b64(account)
        yield f"GCP_CREDENTIALS_B64: {hidden}", [hidden[:200], hidden[-200:]]
        yield f"$ base64 sa.json\n{wrapped_at(hidden, 76)}\n$", wrapped_at(hidden, 76).split("\n")[:-1]
        hidden = b64(f"postgres://app:{simple(draw)}@db.acme.io/app")
        yield f"apiVersion: v1\nkind: Secret\ndata:\n  url: {hidden}\n  host: ZGIuYWNtZS5pbw==\n", [hidden]
        hidden = b64(strong(draw))
        yield f"apiVersion: v1\nkind: Secret\ntype: Opaque\ndata:\n  password: {hidden}\n", [hidden]
        hidden = b64(f"admin:{simple(draw)}")
        yield f"authorization header was Basic {hidden}", [hidden]
        secret = strong(draw)
        hidden = quote(f"postgres://app:{secret}@db.acme.io/app", safe="")
        yield f"GET /connect?dsn={hidden} HTTP/1.1", [quote(secret, safe="")]
        secret = token(draw)
        hidden = "".join(f"%{ord(each):02x}" for each in secret)
        yield f"GET /a?x={hidden}&y=1", [hidden]
        hidden = "".join(f"\\u{ord(each):04x}" for each in secret)
        yield f'{{"value": "{hidden}"}}', [hidden]
        hidden = "".join(f"\\x{ord(each):02x}" for each in secret)
        yield f'char *v = "{hidden}";', [hidden]
        hidden = "".join(f"&#{ord(each)};" for each in secret)
        yield f"<p>{hidden}</p>", [hidden]
        hidden = secret.encode().hex()
        yield f"payload: {hidden}", [hidden]
        hidden = f"password={strong(draw)}".encode().hex()
        yield f"0x{hidden}", [hidden]
        secret = strong(draw)
        hidden = "".join(f"\\u{ord(each):04x}" for each in secret)
        yield f'{{"password": "{hidden}"}}', [hidden]
        secret = strong(draw)
        yield json.dumps(json.dumps({"password": secret}))[1:-1].replace('"', "\\u0022"), [secret]
        yield f"{{\\u0022password\\u0022: \\u0022{secret}\\u0022}}", [secret]
        yield f"{{&quot;apiKey&quot;:&quot;{some(draw, ALNUM, 32)}&quot;}}", []
        secret = some(draw, ALNUM, 32)
        yield f"{{&quot;apiKey&quot;:&quot;{secret}&quot;}}", [secret]
        yield f'b\'{{"access_token":"{secret}"}}\\r\\n\'', [secret]


def key_tails(draw: Draw) -> Iterator[Hidden]:
    for _ in range(4):
        lines = pem(draw).split("\n")
        yield "\n".join(["$ tail -n 5 id_rsa", *lines[2:]]), lines[2:-1]
        lines = pem(draw).split("\n")
        yield "\n".join(["[output truncated: 1200 characters]", lines[1][20:], *lines[2:], "$"]), lines[2:-1]
        lines = pem(draw).split("\n")
        yield json.dumps({"stdout": "\n".join(lines[1:])}), lines[2:-2]
        lines = pem(draw).split("\n")
        yield "\n".join(f"2026-03-01T10:11:12.{number:07d}Z {line}" for number, line in enumerate(lines)), lines[1:-1]
        lines = pem(draw).split("\n")
        yield "\n".join(f"+    {line}" for line in lines), lines[1:-1]
        lines = pem(draw).split("\n")
        yield "\n".join(f"web-1  | {line}" for line in lines), lines[1:-1]
        lines = pem(draw).split("\n")
        yield 'key = "' + '" +\n      "'.join(f"{line}\\n" for line in lines) + '"', lines[1:-1]
        lines = pem(draw).split("\n")
        yield "\n".join(painted(draw, line) for line in lines), lines[1:-1]
        lines = pem(draw).split("\n")
        yield " ".join(lines), lines[1:-1]


def columns(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        one, two = strong(draw), lettered(draw)
        yield f"username,password,role\nalice,{one},admin\nbob,{two},user\n", [one, two]
        yield f'"id";"login";"passwd"\n"1";"alice";"{one}"\n"2";"bob";"{two}"\n', [one, two]
        yield f"user\tpassword\nalice\t{one}\nbob\t{two}\n", [one, two]
        yield f"| user | password |\n|------|:--------:|\n| alice | {one} |\n| bob | {two} |\n", [one, two]
        yield (
            f" id | name  |    password\n----+-------+----------------\n  1 | alice | {one}\n  2 | bob   | {two}\n(2 rows)\n",
            [one, two],
        )
        yield (
            f"+----+-------+-----------------+\n| id | name  | password        |\n+----+-------+-----------------+\n|  1 | alice | {one} |\n|  2 | bob   | {two} |\n+----+-------+\n",
            [one, two],
        )
        secret = some(draw, ALNUM, 32)
        yield f"service,api_key,env\nbilling,{secret},prod\n", [secret]
        identity = a_uuid(draw)
        yield f"| name | access_token |\n|---|---|\n| ci | {identity} |\n", [identity]
        yield f"| DB_USER | app |\n| DB_PASSWORD | {one} |\n| DB_PORT | 5432 |", [one]
        yield f"│ DB_USER     │ app │\n│ DB_PASSWORD │ {one} │\n", [one]
        yield f"-[ RECORD 1 ]---\nid       | 1\npassword | {one}\n", [one]
        yield f"INSERT INTO users (id, email, password) VALUES (1, NULL, '{one}'), (2, NULL, '{two}');", [one, two]
        yield f"INSERT INTO `accounts` (`user`, `api_token`) VALUES ('ci', '{secret}');", [secret]
        yield f"COPY public.users (id, name, password) FROM stdin;\n1\talice\t{one}\n2\tbob\t{two}\n\\.\n", [one, two]
        yield f"NAME         PASSWORD          AGE\nalice        {one}   3d\nbob          {two}   5d\n", [one, two]
        yield f"   username         password\n0     alice  {one}\n1       bob  {two}\n", [one, two]
        yield f"[('alice', '{one}'), ('bob', '{two}')]  # (user, password)", []
        yield json.dumps({"columns": ["user", "password"], "rows": [["alice", one], ["bob", two]]}), [one, two]
        yield f"<tr><th>Password</th><td>{one}</td></tr>", [one]
        value = some(draw, HEX, 32)
        yield f"# Netscape HTTP Cookie File\n.acme.io\tTRUE\t/\tTRUE\t1767225600\tsessionid\t{value}\n", [value]
        value = some(draw, URLSAFE, 44)
        yield f"#HttpOnly_app.acme.io\tFALSE\t/\tTRUE\t0\tremember_token\t{value}", [value]


def keyed(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        for name in (
            "GITHUB_TOKEN",
            "VAULT_TOKEN",
            "AZURE_DEVOPS_EXT_PAT",
            "ADO_PAT",
            "api_token",
            "HEROKU_API_KEY",
            "CI_JOB_TOKEN",
            "SNYK_TOKEN",
            "CLIENT_SECRET",
            "gitlab_pat",
            "ACCESS_TOKEN",
        ):
            identity = a_uuid(draw)
            yield f"{name}={identity}", [identity]
            yield json.dumps({name: identity, "id": 4}), [identity]
            yield f"{name}: {identity}", [identity]
            yield f'{name} = "{identity}"', [identity]
        django = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)") for _ in range(50))
        yield f"SECRET_KEY = 'django-insecure-{django}'", [django]
        yield f'SECRET_KEY = "{django}"', [django]
        yield f"SECRET_KEY='{django}'", [django]
        yield f"DJANGO_SECRET_KEY={django}", [django]
        salty = some(draw, ALNUM, 20) + "{}[]<>|`" + some(draw, ALNUM, 20)
        yield f"define('AUTH_KEY', '{salty}');", [salty]
        yield f"'secret' => '{some(draw, ALNUM, 16)}[{(end := some(draw, ALNUM, 12))}]',", [end]
        for place in (
            "password={}", "DB_PASSWORD={}", "export MYSQL_PWD={}", "POSTGRES_PASSWORD: {}", "    password: {}", "password = {}",
            "spring.datasource.password={}", "host=db user=app password={} dbname=app", "Server=db;Uid=app;Pwd={};", "?user=app&password={}&ssl=1",
            "jdbc:mysql://db/app?user=root&password={}", "-e MYSQL_ROOT_PASSWORD={}", "db.password={}\ndb.port=5432", "login=app&password={}",
            "MAIL_PASSWORD={}\nMAIL_PORT=25", "rpcpassword={}", 'password="{}"', "'password': '{}'", "--password={}", "--password {}", "user: root password: {}",
            "machine api.acme.io login ci password {}", "ansible_become_password: {}", "[db]\npassword: {}\n", "<password>{}</password>",
        ):  # fmt: skip
            secret = lettered(draw)
            yield place.format(secret), [secret]


def sessions(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        secret = lettered(draw)
        yield f'spawn ssh root@10.1\nexpect "*assword:*"\nsend "{secret}\\r"\ninteract', [secret]
        secret = strong(draw)
        yield f'expect {{\n  "password:" {{ send -- "{secret}\\r" }}\n}}', [secret]
        yield f"child.expect('Password:')\nchild.sendline('{secret}')", [secret]
        yield f"[sudo] password for deploy: {secret}\n", [secret]
        yield f"Enter passphrase for key '/root/.ssh/id_rsa': {secret}", [secret]
        yield f"mysql> SET PASSWORD FOR 'app'@'%' = '{secret}';", [secret]
        yield f"postgres=# \\password app\nEnter new password: {secret}\n", [secret]
        yield f"Username: alice\nPassword: {secret}\nLogin succeeded", [secret]
        yield f'send_user password\nset password "{secret}"', [secret]
        secret = simple(draw)
        yield f"https://deploy:{secret}@git.acme.io\nhttps://ci:{secret}@gitlab.acme.io", [secret]
        yield f"*:5432:app:app:{secret}", [secret]
        yield f"net use Z: \\\\nas\\share /user:alice {secret}", [secret]
        yield f"USER alice\n331 Password required\nPASS {secret}\n230 Logged in", [secret]
        yield f"AUTH {secret}\n+OK", [secret]
        yield (
            f"AUTH LOGIN\n334 VXNlcm5hbWU6\n{b64('alice@acme.io')}\n334 UGFzc3dvcmQ6\n{(hidden := b64(secret))}\n235 ok",
            [hidden],
        )


PROSE = (
    "Das Passwort lautet {}.", "Das Kennwort für den Server ist {}", "das neue Passwort ist {}, bitte ändern", "Dein Passwort: {}",
    "Bitte melde dich mit Benutzer admin und Passwort {} an.", "Zugangsdaten: admin / {}", "Mit dem Passwort {} kommst du rein.",
    "Das Passwort wurde auf {} geändert.", "Der API-Schlüssel lautet {}", "Das Admin-Passwort war {}", "Das WLAN-Passwort heißt {}.",
    "La contraseña es {}", "La contraseña del servidor es {}.", "mi contraseña: {}", "Usa la contraseña {} para entrar.",
    "La clave de acceso es {}", "El usuario es admin y la contraseña es {}", "Cambié la contraseña a {}", "La nueva clave es {}",
    "Le mot de passe est {}", "Le mot de passe du serveur est {}.", "mot de passe : {}", "Mon mot de passe : {}", "Utilisez le mot de passe {} pour vous connecter.",
    "Le nouveau mot de passe est « {} ».", "La clé API est {}", "J'ai changé le mot de passe en {}", "identifiants : admin / {}",
    "La password è {}", "la password del server è {}", "A senha é {}", "A senha do servidor é {}.", "Het wachtwoord is {}", "Hasło to {}", "Lösenordet är {}",
    "The password is {}", "Password for root is {}", "use {} as the password", "I set the password to {}", "The password you need is {}",
    "log in as admin with {} as password", "creds: admin/{}", "user admin, pw {}", "my password's {}", "Here's the password: {}", "passwort = {}", "pass phrase: {}",
    "The new root password has been set to '{}'.", "credentials are admin:{}", "Пароль от сервера: {}", "パスワードは{}です", "密码为{}", "비밀번호는 {} 입니다",
)  # fmt: skip


def prose(draw: Draw) -> Iterator[Hidden]:
    for place in PROSE:
        secret = strong(draw)
        yield place.format(secret), [secret]
        secret = (
            draw.choice(WORDS).capitalize()
            + str(draw.randrange(10, 9999))
            + draw.choice("!?#") * draw.randrange(2)
            + "x"
        )
        yield place.format(secret), [secret]


def numbers(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        seed = "".join(draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(32))
        yield f"otpauth://totp/ACME:alice?secret={seed}&issuer=ACME", [seed]
        yield f"TOTP_SECRET={seed}", [seed]
        yield f"Your 2FA secret key is {seed}", [seed]
        yield f"mfa_seed: {seed}", [seed]
        codes = [
            f"{some(draw, string.ascii_lowercase + string.digits, 5)}-{some(draw, string.ascii_lowercase + string.digits, 5)}"
            for _ in range(4)
        ]
        yield "Recovery codes:\n" + "\n".join(codes), codes
        yield json.dumps({"recovery_codes": codes}), codes
        codes = [f"{draw.randrange(10**3, 10**4)} {draw.randrange(10**3, 10**4)}" for _ in range(4)]
        yield "Backup codes (each works once):\n" + "\n".join(f"{n + 1}. {code}" for n, code in enumerate(codes)), codes
        secret = card(draw)
        yield f"PAN {secret} exp 12/29 cvv 123", [secret]
        secret = iban(draw)
        yield f"Überweisung auf {secret} bitte", [secret]
        secret = ssn(draw)
        yield f"SSN: {secret}", [secret]
        secret = phone(draw)
        yield f"Tel. {secret}", [secret]


def configured(draw: Draw) -> Iterator[Hidden]:
    for _ in range(3):
        secret = strong(draw)
        yield f'resource "aws_db_instance" "main" {{\n  username = "app"\n  password = "{secret}"\n}}', [secret]
        yield (
            json.dumps(
                {
                    "resources": [
                        {"type": "random_password", "instances": [{"attributes": {"result": secret, "length": 15}}]}
                    ]
                }
            ),
            [secret],
        )
        yield (
            json.dumps({"outputs": {"db_password": {"value": secret, "type": "string", "sensitive": True}}}, indent=2),
            [secret],
        )
        yield (
            f"[default]\naws_access_key_id = {(one := TOKENS['aws id'](draw))}\naws_secret_access_key = {(two := some(draw, BASE64, 40))}\n",
            [one, two],
        )
        yield f"[profile ci]\naws_session_token={(three := some(draw, BASE64, 200))}", [three]
        yield (
            f"users:\n- name: admin\n  user:\n    token: {(one := jwt(draw))}\n    client-key-data: {(two := b64(pem(draw)))}",
            [one, two[:100]],
        )
        yield (
            f"//registry.npmjs.org/:_authToken={(one := TOKENS['npm'](draw))}\n//npm.acme.io/:_password={(two := b64(simple(draw)))}\n",
            [one, two],
        )
        yield (
            f"[distutils]\nindex-servers = pypi\n[pypi]\nusername = __token__\npassword = {(one := TOKENS['pypi'](draw))}\n",
            [one],
        )
        yield (
            json.dumps(
                {
                    "kty": "RSA",
                    "n": some(draw, URLSAFE, 342),
                    "e": "AQAB",
                    "d": (one := some(draw, URLSAFE, 342)),
                    "p": (two := some(draw, URLSAFE, 171)),
                }
            ),
            [one, two],
        )
        yield json.dumps({"kty": "oct", "k": (one := some(draw, URLSAFE, 43))}), [one]
        yield (
            f"PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPrivate-Lines: 1\n{(one := some(draw, BASE64, 43))}=\nPrivate-MAC: {some(draw, HEX, 64)}",
            [one],
        )
        yield (
            f"https://hooks.slack.com/services/T{some(draw, UPPER, 8)}/B{some(draw, UPPER, 8)}/{(one := some(draw, ALNUM, 24))}",
            [one],
        )
        yield (
            f"https://discord.com/api/webhooks/{draw.randrange(10**17, 10**18)}/{(one := some(draw, URLSAFE, 68))}",
            [one],
        )
        yield (
            f"https://acme.blob.core.windows.net/c/f?sv=2022-11-02&sr=b&sig={(one := quote(b64(some(draw, ALNUM, 32)), safe=''))}&se=2026-01-01",
            [one],
        )
        yield (
            f'<add name="Main" connectionString="Server=db;Database=app;User Id=app;Password={(one := simple(draw))};" />',
            [one],
        )
        yield f'<setting name="ApiKey"><value>{(one := some(draw, ALNUM, 32))}</value></setting>', [one]
        yield (
            f"Cookie: csrftoken={(one := some(draw, ALNUM, 32))}; sessionid={(two := some(draw, ALNUM, 32))}",
            [one, two],
        )
        yield f"< set-cookie: JSESSIONID={(one := some(draw, UPPER, 32))}; Path=/; HttpOnly", [one]
        yield f"requests.get(url, headers={{'X-Auth-Token': '{(one := some(draw, HEX, 40))}'}})", [one]
        yield f"requests.get(url, auth=('app', '{(one := strong(draw))}'))", [one]
        yield f"-----BEGIN PGP MESSAGE-----\nnothing\npassword={(one := strong(draw))}", [one]
        yield f"- DB_PASSWORD={(old := strong(draw))}\n+ DB_PASSWORD={(new := strong(draw))}", [old, new]
        yield (
            f"KeyError at line 4\n    db.connect(user='app', password='{(one := strong(draw))}')\npsycopg2.OperationalError",
            [one],
        )
        yield (
            f"docker run -e TOKEN={(one := TOKENS['github'](draw))} -e SECRET={(two := some(draw, HEX, 40))} img",
            [one, two],
        )
        yield f"Sending request: {{'client_id': 'ci', 'client_secret': '{(one := some(draw, URLSAFE, 40))}'}}", [one]
        yield f"kubectl create secret docker-registry r --docker-password={(one := strong(draw))}", [one]
        yield f"vault kv put secret/db password={(one := lettered(draw))}", [one]
        yield f'"env": [{{"name": "API_TOKEN", "value": "{(one := a_uuid(draw))}"}}]', [one]
        yield f"::add-mask::{(one := token(draw))}", [one]
        yield f"2026-03-01T10:11:12.1234567Z   DB_PASSWORD: {(one := strong(draw))}", [one]
        yield f"  \"source\": [\n    \"os.environ['API_KEY'] = '{(one := some(draw, ALNUM, 32))}'\\n\",\n", [one]
        yield f"mysql -u root -p{(one := strong(draw))} -e 'select 1'", [one]
        yield (
            f"WIREGUARD\n[Interface]\nPrivateKey = {(one := b64(some(draw, ALNUM, 32))[:43])}=\nAddress = 10.9.0.1/32",
            [one],
        )
        yield f"Set-Cookie: auth={(one := jwt(draw))}; Secure", [one]
        yield f"BASIC_AUTH=admin:{(one := strong(draw))}", [one]
        yield f'secret: "{(one := some(draw, ALNUM, 24))}"', [one]


CATEGORIES = {
    "colours": coloured,
    "invisible characters and markup": invisible,
    "torn tokens": torn,
    "encodings": encoded,
    "tails of keys": key_tails,
    "columns": columns,
    "keys and values": keyed,
    "sessions": sessions,
    "prose": prose,
    "codes and numbers": numbers,
    "configuration": configured,
}


def disguised(seed: int = 4) -> Iterator[Sample]:
    """Every text with secrets."""
    draw = random.Random(seed)
    for category, make in CATEGORIES.items():
        for text, hidden in make(draw):
            if hidden:
                assert all(each in text for each in hidden), (text, hidden)
                yield category, text, hidden


def benign(draw: Draw) -> Iterator[str]:
    for how in range(7):
        yield written(f"{painted(draw, 'commit ' + some(draw, HEX, 40))} ({painted(draw, 'HEAD')})", how)
        yield written(f"{painted(draw, 'PASSED')} tests/test_token.py::test_secret {painted(draw, '[ 50%]')}", how)
        yield written(f"{painted(draw, 'def')} {painted(draw, 'login')}(user, password):", how)
        yield written(f"{painted(draw, '+')}    password = get_password()", how)
        yield written(f"{painted(draw, 'token')}: {painted(draw, 'str')} | None = None", how)
        yield written(f"{painted(draw, 'password')}={painted(draw, '********')}", how)
        yield written(f"sha256:{painted(draw, some(draw, HEX, 64))}", how)
    for _ in range(3):
        yield f"$ base64 logo.png\n{wrapped_at('iVBORw0KGgoAAAANSUhEUg' + some(draw, BASE64, 400), 76)}\n"
        yield f"$ base64 README.md\n{wrapped_at(b64('# Acme' + chr(10) + 'A library for working with tokens and keys. Install it with pip, then run the tests.' + chr(10)), 76)}\n"
        yield f"echo {b64('hello world, this is a test')} | base64 -d"
        yield f"config: {b64(json.dumps({'a': 1, 'name': 'acme', 'debug': True}))}"
        yield f"eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0={''}"
        yield f"//# sourceMappingURL=data:application/json;base64,{b64(json.dumps({'version': 3, 'sources': ['a.ts', 'token.ts'], 'mappings': 'AAAA'}))}"
        yield f"integrity=sha512-{some(draw, BASE64, 86)}=="
        yield f"checksum: {some(draw, HEX, 64)}\n{some(draw, HEX, 64)}\n"
        yield "\n".join(f"{some(draw, HEX, 40)} {name}" for name in ("refs/heads/main", "refs/tags/v1"))
        yield "msg = 'the ' + 'password' + ' is wrong'"
        yield 'error = "could not " \\\n    "connect to the server with the token"'
        yield "query = 'SELECT id, password FROM users ' + 'WHERE id = 1'"
        yield "url = base + '/v1/' + 'tokens' + '/' + token_id"
        yield "docker run \\\n  --name web \\\n  -p 8080:80 \\\n  nginx"
        yield "cmake -DCMAKE_BUILD_TYPE=Release \\\n      -DUSE_TOKENS=ON \\\n      -DKEYS=4 .."
        yield "id,name,email_verified\n1,alice,true\n2,bob,false\n"
        yield "name,key,value\nretries,max_retries,3\ntimeout,timeout_seconds,30\n"
        yield "| option | default |\n|---|---|\n| password | none |\n| token | required |\n| api_key | optional |\n"
        yield "| Column | Type |\n|---|---|\n| password | varchar(255) |\n| token | text |\n"
        yield " column_name | data_type\n-------------+-----------\n id | integer\n password | character varying\n api_key | text\n(3 rows)\n"
        yield "test,password,token\nunit,pass,pass\nlint,pass,fail\n"
        yield "prompt_tokens,completion_tokens,total_tokens\n120,80,200\n"
        yield "| model | tokens | loss |\n|---|---|---|\n| small | 120000 | 1.234 |\n"
        yield "NAME                  TYPE     DATA   AGE\ndb-password           Opaque   1      3d\napi-token             Opaque   2      5d\n"
        yield f"NAME       READY   STATUS\nweb-{some(draw, HEX, 10)}-{some(draw, string.ascii_lowercase, 5)}   1/1   Running\n"
        yield "INSERT INTO settings (name, value) VALUES ('theme', 'dark');"
        yield "INSERT INTO users (id, password) VALUES ($1, $2) RETURNING id;"
        yield "INSERT INTO users (name, password) VALUES (?, ?)"
        yield "CREATE TABLE users (id INT, password VARCHAR(255), token TEXT);"
        yield f"request {a_uuid(draw)} finished; tenant={a_uuid(draw)}"
        yield f"SESSION_ID_LENGTH=32\nrun_id: {a_uuid(draw)}"
        yield f"client_id: {a_uuid(draw)}\ntenant_id: {a_uuid(draw)}"
        yield f"project_id={a_uuid(draw)}&page=2"
        yield 'path = "C:\\\\Users\\\\new\\\\table\\\\file.txt"'
        yield "re.compile(r'\\x1b\\[[0-9;]*m')"
        yield "print('\\u2713 all tests passed\\n')"
        yield "GET /search?q=how%20to%20reset%20a%20password%3F&lang=en"
        yield "https://docs.acme.io/%E5%AF%86%E7%A0%81"
        yield "&lt;input type=&quot;password&quot; name=&quot;password&quot;&gt;"
        yield "expect(screen.getByLabelText('Password')).toBeVisible()"
        yield 'expect "$ "\nsend "ls -la\\r"'
        yield "expect(await login('alice')).toEqual({ token: expect.any(String) })"
        yield "Das Passwort ist zu kurz."
        yield "Das Passwort muss mindestens 12 Zeichen lang sein."
        yield "Bitte geben Sie Ihr Passwort ein."
        yield "La contraseña es obligatoria."
        yield "La contraseña es incorrecta, inténtalo de nuevo."
        yield "Le mot de passe est incorrect."
        yield "Le mot de passe est requis et doit contenir 8 caractères."
        yield "Mot de passe oublié ?"
        yield "La clave primaria es id."
        yield "The password is required."
        yield "The password is stored as a bcrypt hash."
        yield "use a strong password as the default"
        yield "The token is refreshed every 15 minutes."
        yield "password=password123456789" if False else "password = form.cleaned_data['password']"
        yield "connect(user=user, password=password, host=host)"
        yield "User.objects.create_user(username=name, password=raw_password)"
        yield "login(username=username, password=passphrase)"
        yield "f(password=secretValue, token=accessToken)"
        yield "const { password, token } = req.body;"
        yield "password=$DB_PASSWORD"
        yield "password: <your password>"
        yield "password: changeme"
        yield "password: string\ntoken: string\nsecret: string"
        yield "password: Password\npassword: Wachtwoord"
        yield '"password": "Passwort",\n"forgotPassword": "Passwort vergessen?"'
        yield '"login.password": "Mot de passe"'
        yield "PASSWORD=required\nTOKEN=optional"
        yield "authentication: password\nauth_method: token"
        yield "password-authentication no\nPasswordAuthentication yes"
        yield "PermitRootLogin prohibit-password"
        yield "--password string   password of the user\n--token string      access token"
        yield "  -p, --password PASSWORD  the password to use"
        yield "usage: login [--user USER] [--password PASSWORD] [--token TOKEN]"
        yield "pass: 12, fail: 3, skip: 1"
        yield "secrets: inherit"
        yield "token=None, secret=False, key=True"
        yield f"-----BEGIN CERTIFICATE-----\n{wrapped_at('MII' + some(draw, BASE64, 400), 64)}\n-----END CERTIFICATE-----"
        yield f"{wrapped_at(some(draw, BASE64, 300), 64)}\n-----END CERTIFICATE-----"
        yield f"-----BEGIN PUBLIC KEY-----\n{wrapped_at(some(draw, BASE64, 200), 64)}\n-----END PUBLIC KEY-----"
        yield f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{some(draw, BASE64, 43)} build"
        yield f"SHA256:{some(draw, BASE64, 43)} root@build (ED25519)"
        yield f"0x{some(draw, HEX, 64)} transferred to 0x{some(draw, HEX, 40)}"
        yield f"00000000: {' '.join(some(draw, HEX, 4) for _ in range(8))}  ................"
        yield f"{some(draw, HEX, 128)}"
        yield "from tokenizers import Tokenizer\nfrom secrets import token_hex"
        yield "E   AssertionError: assert 'abc' == 'abd'\nE     - abd\nE     + abc"
        yield "Recovery codes can be regenerated in the settings."
        yield "backup code path: fallback\nrecovery_codes = generate_codes(10)"
        yield f"ok  \tgithub.com/acme/token\t0.{draw.randrange(10, 999)}s"
        yield f"go: downloading golang.org/x/crypto v0.{draw.randrange(10, 30)}.0"
        yield f"golang.org/x/crypto v0.17.0 h1:{some(draw, BASE64, 43)}="
        yield f'name = "acme"\nversion = "1.2.3"\nchecksum = "{some(draw, HEX, 64)}"'
        yield f'{{file = "acme-1.0-py3-none-any.whl", hash = "sha256:{some(draw, HEX, 64)}"}},'
        yield f'W/"{some(draw, HEX, 16)}-{some(draw, BASE64, 27)}"'
        yield f"blob {some(draw, HEX, 40)}\ntree {some(draw, HEX, 40)}"
        yield f"Uploading layer {some(draw, HEX, 64)} 12.3MB/45MB"
        yield f'"uuid": "{a_uuid(draw)}", "token_count": 128'


def benign_texts(seed: int = 4) -> Iterator[tuple[str, str]]:
    """Category and text of what holds no secret: under disguises, and the look-alikes in colours."""
    draw = random.Random(seed + 1)
    for text in dict.fromkeys(benign(draw)):
        yield "benign, disguised", text
    for text in look_alikes(seed):
        first, _, rest = text.partition(" ")
        yield "benign, coloured", painted(draw, first) + " " + painted(draw, rest) if rest else painted(draw, first)
        yield "benign, in JSON", json.dumps({"stdout": json.dumps(text + "\x1b[0m")})
