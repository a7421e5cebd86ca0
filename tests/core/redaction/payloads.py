"""Realistic payloads, whether a recording of them differs from what was sent, and why."""

import base64
import json
from dataclasses import dataclass, field

from tapeway.core.model.messages import Headers

OPAQUE = "4f6b2c9d8e1a7350Xq"
LOGIN = base64.b64encode(b"elastic:elasticsearch").decode()


@dataclass(frozen=True, slots=True)
class Payload:
    """One exchange. `body` is of the response, or of the request where `asked` is true."""

    why: str
    body: object
    differs: bool = False
    asked: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    media: str = "application/json"
    environ: dict[str, str] = field(default_factory=dict)
    target: str = "/v1/x"

    @property
    def octets(self) -> bytes:
        """The body as it is sent."""
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        return text.encode()

    @property
    def request_headers(self) -> Headers:
        """The header of the request."""
        own = {"content-type": self.media} if self.asked else {}
        return _encoded({**own, **self.headers})

    @property
    def response_headers(self) -> Headers:
        """The header of the response."""
        return _encoded({"content-type": self.media, **self.answered})


def _encoded(headers: dict[str, str]) -> Headers:
    return tuple([(name.encode(), value.encode()) for name, value in headers.items()])


def answer(content: str) -> object:
    """A chat completion that says this."""
    message = {"role": "assistant", "content": content, "refusal": None}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}


def prompt(content: str) -> object:
    """A chat request that says this."""
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}


PAYLOADS = [
    # What a service says of credentials.
    Payload("a validation error names the field", {"access_token": "is_required"}),
    Payload("a rule for passwords", {"password": "must_have_at_least_8_chars"}),
    Payload("words about a field", {"errors": {"api_key": ["is not valid"], "secret": "too short"}}),
    Payload("a code of an error", {"client_secret": "invalid_client_credentials"}),
    Payload("a flag", {"password": True, "access_token": None, "refresh_token": False}),
    Payload("a number is none", {"access_token": 123456789012, "password": 12345678}),
    Payload("digits are none", {"access_token": "123456789012", "id_token": "2024071812"}),
    Payload("a date", {"refresh_token": "2026-01-01T00:00:00Z", "secret_key": "2026-01-01"}),
    Payload("a model", {"api_key": "gpt-4o-mini-2024-07-18", "token": "claude-3-5-sonnet-20241022"}),
    Payload("a path", {"private_key": "/home/me/.ssh/id_ed25519", "secret": "projects/p1/secrets/s"}),
    Payload("a template", {"api_key": "${OPENAI_API_KEY}", "password": "{{ secrets.PASSWORD }}"}),
    Payload("a stand-in", {"api_key": "YOUR_API_KEY_HERE", "password": "********************"}),
    Payload("a mask of the service", {"api_key": "sk-...Ab3x", "access_token": "gho_****************"}),
    Payload("a schema declares a password", {"properties": {"password": {"type": "string"}}}),
    Payload("a list of names", {"required": ["api_key", "password", "access_token"]}),
    Payload("log-probabilities", {"logprobs": [{"token": "internationalization", "logprob": -1.5}]}),
    Payload("log-probabilities of an opaque piece", {"logprobs": [{"token": OPAQUE, "logprob": -1}]}),
    Payload("a page's token", {"next_page_token": OPAQUE, "nextPageToken": OPAQUE}),
    Payload("a cache key", {"cache_key": OPAQUE, "partition_key": OPAQUE, "key": OPAQUE}),
    Payload("usage", {"usage": {"prompt_tokens": 7, "total_tokens": 123456789012}}),
    Payload("identifiers", {"id": "chatcmpl-BRn2sk1aIzQw4f6b", "system_fingerprint": "fp_44709d6fcb"}),
    Payload("a thought's signature", {"type": "thinking", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"}),
    Payload("a type of token", {"token_type": "bearer", "expires_in": 3600}),
    Payload("a hash", {"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}),
    # What a model says.
    Payload("a documentation example of AWS", answer("Use AKIAIOSFODNN7EXAMPLE as the key id.")),
    Payload("an example of a key", answer("export OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx")),
    Payload("a stand-in in code", answer('client = OpenAI(api_key="YOUR_API_KEY")')),
    Payload("a variable in code", answer('api_key=os.environ["OPENAI_API_KEY"]')),
    Payload("a name in code", answer("password = request.form.get_password_field")),
    Payload("JSON about a password", answer('{"password": "Please enter your password now"}')),
    Payload("a database of a tutorial", answer("postgresql://postgres:postgres@localhost:5432/db")),
    Payload("a password of a tutorial", answer("postgresql://user:password@localhost:5432/db")),
    Payload("a URL with a stand-in", answer("https://api.example.com/?api_key=YOUR_API_KEY_HERE")),
    Payload("a sentence of hyphens", answer("task-management-for-everyone-and-2-more-people")),
    Payload("prose", answer("The secret: a key, a token and a password. Authorization: required.")),
    Payload("a header in prose", answer("Send Authorization: Bearer <token> with each call.")),
    Payload("curl of a tutorial", answer("curl -u user:password https://api.example.com/me")),
    # What a request says about its caller.
    Payload(
        "the word of an anonymous login",
        {"role": "anonymous-user"},
        headers={"Authorization": "Bearer anonymous-user"},
    ),
    Payload(
        "a well-known login",
        {"cluster_name": "elasticsearch", "tagline": "elastic:elasticsearch"},
        headers={"Authorization": f"Basic {LOGIN}"},
    ),
    Payload(
        "a cookie's model",
        {"model": "gpt-4o-mini-2024-07-18"},
        headers={"Cookie": "m=gpt-4o-mini-2024-07-18"},
    ),
    Payload("a cookie's path", {"next": "/home/customers/list"}, headers={"Cookie": "b=/home/customers/list"}),
    Payload("a cookie's date", {"at": "2026-01-01T00:00:00Z"}, headers={"Cookie": "t=2026-01-01T00:00:00Z"}),
    Payload(
        "a project's id",
        {"project": "proj_4f6b2c9d8e1a"},
        headers={"OpenAI-Project": "proj_4f6b2c9d8e1a"},
    ),
    Payload(
        "an organisation's id",
        {"organization": "org-4f6b2c9d8e1a"},
        headers={"OpenAI-Organization": "org-4f6b2c9d8e1a"},
    ),
    Payload(
        "a project of Google's",
        {"name": "projects/my-project-4f6b2c9d/locations/eu"},
        headers={"x-goog-user-project": "my-project-4f6b2c9d"},
    ),
    Payload(
        "the key of a repeated request",
        {"idempotency_key": "550e8400-e29b-41d4-a716-446655440000"},
        headers={"Idempotency-Key": "550e8400-e29b-41d4-a716-446655440000"},
    ),
    Payload("a number of an account", {"account": 123456789012}, headers={"X-Api-Key": "123456789012"}),
    # What the environment holds.
    Payload(
        "the name of a column",
        {"column": "customer_email_address"},
        environ={"PARTITION_KEY": "customer_email_address"},
    ),
    Payload("a file", {"file": "/etc/ssl/private.pem"}, environ={"TLS_KEY": "/etc/ssl/private.pem"}),
    Payload("a word in a prompt", prompt("my-application-token"), asked=True, environ={"MY_APP_TOKEN": "my-application-token"}),
    # What a request asks.
    Payload("a password in a prompt", prompt('Translate: {"password": "Your password has expired"}'), asked=True),
    Payload("prose behind api_key", prompt('{"api_key": "is what you put here", "client_secret": "too"}'), asked=True),
    Payload("a list of passes", {"pass": 12, "fail": 3, "skip": 0}, asked=True),
    Payload("a working directory", {"pwd": "/home/me/project", "cmd": "ls"}, asked=True),
    Payload("a tool's parameters", {"tools": [{"parameters": {"properties": {"api_key": {"type": "string"}}}}]}, asked=True),
    Payload("a chocolate cookie", {"cookie": "chocolate-chip", "auth": "none", "credentials": "include"}, asked=True),
    Payload("an address of a hook", {"webhook_url": "https://my-app.example.org/hooks/finished"}, asked=True),
    Payload("a server of tools", {"tools": [{"type": "mcp", "server_url": "https://mcp.example.com/mcp/v1"}]}, asked=True),
    Payload("a limit", {"max_tokens": 256, "stop_token": "</s>", "key": "value", "token": "word"}, asked=True),
    # What holds a secret.
    Payload("a token that is issued", {"access_token": OPAQUE, "token_type": "bearer"}, differs=True),
    Payload("a key that is made", {"api_key": {"id": "k1"}, "secret_key": OPAQUE}, differs=True),
    Payload("a key that a model repeats", answer(f"sk-proj-{OPAQUE}"), differs=True),
    Payload("a key that is sent and said back", answer(OPAQUE), differs=True, headers={"X-Api-Key": OPAQUE}),
    Payload("a key of the environment", answer(OPAQUE), differs=True, environ={"MY_KEY": OPAQUE}),
    Payload("a cookie that is said back", answer(OPAQUE), differs=True, headers={"Cookie": f"s={OPAQUE}"}),
    Payload("a password that is sent", {"user": "a", "password": "hunter22"}, differs=True, asked=True),
    Payload("a key that is a word in a request", {"api_key": "dummy"}, differs=True, asked=True),
    Payload("a password of digits in a form", "user=a&password=123456", differs=True, asked=True, media="application/x-www-form-urlencoded"),
    Payload("a key in a prompt's JSON", prompt(f'{{"api_key": "{OPAQUE}"}}'), differs=True, asked=True),
    Payload("a token of a service", {"connectors": [{"service_auth": {"type": "bearer", "token": OPAQUE * 2}}]}, differs=True, asked=True),
    Payload("a key of Azure's", {"authentication": {"type": "api_key", "key": OPAQUE * 2}}, differs=True, asked=True),
    Payload("a login in XML", f"<r><SessionToken>{OPAQUE}</SessionToken></r>", differs=True, media="text/xml"),
    Payload("a password of a database", answer("postgresql://app:Tr0ub4dor@db.internal:5432/x"), differs=True),
    Payload("the field that names the account", {"organization": "org-4f6b2c9d"}, differs=True, answered={"openai-organization": "org-4f6b2c9d"}),
    Payload("a login of curl", answer("curl -u admin:Tr0ub4dor https://x"), differs=True),
    Payload("a key in code", answer(f'client = OpenAI(api_key="{OPAQUE}")'), differs=True),
    Payload("a connection string", answer("Server=db;Password=Tr0ub4dor;"), differs=True),
    Payload("variables of a container", {"env": [f"WANDB_TOKEN={OPAQUE}"]}, differs=True, asked=True),
    Payload("a login of docker", {"auths": {"ghcr.io": {"auth": "bWU6NGY2YjJjOWQ4ZTFhNzM1MA=="}}}, differs=True, asked=True),
    Payload("a key in a server's path", {"tools": [{"type": "mcp", "server_url": f"https://mcp.example.com/s/{OPAQUE}/mcp"}]}, differs=True, asked=True),
    Payload("a header of a tool", {"tools": [{"type": "mcp", "headers": {"X-Custom-Auth": OPAQUE, "Cookie": f"s={OPAQUE}; a=b"}}]}, differs=True, asked=True),
    Payload("a session in a cookie", {}, differs=True, answered={"Set-Cookie": f"sid={OPAQUE}; Path=/"}),
]  # fmt: skip
