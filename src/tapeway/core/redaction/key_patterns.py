"""The forms of keys and tokens that services give out, one row each.

A form must be so long and so unusual that neither prose, nor an identifier of an API, nor base64
matches it: `task-management-for-everyone`, `toolu_…` and pictures are left alone. Where a form could
be words, an opaque value is asked for.
"""

from collections.abc import Iterator
from typing import NamedTuple


class KeyPattern(NamedTuple):
    """A form of key: label, beginning (RE2 finds candidates by it), and whole pattern.

    If `whole` has a group, only the group is the secret. `may_be_words` demands an opaque value. The
    key has `before` arbitrary characters ahead of the match of `begins`: a search from their start
    would make the automaton slow in every text.
    """

    label: str
    begins: str
    whole: str
    may_be_words: bool = False
    before: int = 0


_ALNUM = "[A-Za-z0-9]"
_URL_SAFE = "[A-Za-z0-9_-]"
_BASE64 = "[A-Za-z0-9+/]"
_HEX = "[0-9a-f]"
_CAPITALS = "[A-Z0-9]"
_SMALL = "[a-z0-9]"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_END = "(?![A-Za-z0-9_-])"
# A picture in base64 goes on after it.
_END_OF_BASE64 = "(?![A-Za-z0-9+/_-])"
_SLASH = r"(?:\\{0,8}/|%2[Ff])"
_MOST_COUNTED = 16

_QUOTE = r'\\{0,8}"'
_BLANKS = r"(?:\s|\\+[nrt]){0,8}"
_QUOTED = f"{_QUOTE}{_BLANKS}:"
_HANDLE = rf'{_QUOTED}{_BLANKS}{_QUOTE}([^"\\]{{8,4096}})'


def _keys(
    label: str,
    prefixes: str,
    alphabet: str,
    least: int,
    most: int,
    after: str = "",
    *,
    may_be_words: bool = False,
) -> KeyPattern:
    """A pattern of a prefix and a number of characters."""
    begins = f"(?:{prefixes}){alphabet}{{{min(least, _MOST_COUNTED)}}}"
    whole = f"(?:{prefixes}){alphabet}{{{least},{most}}}{after}"
    return KeyPattern(label, begins, whole, may_be_words)


def _ai_services() -> Iterator[KeyPattern]:
    yield _keys("anthropic-key", "sk-ant-", _URL_SAFE, 16, 512)
    yield _keys("openai-key", "sk-(?:proj|svcacct|admin|None)-", _URL_SAFE, 16, 512)
    yield _keys("sk-key", "sk-", _URL_SAFE, 18, 512, may_be_words=True)
    yield _keys("provider-key", "sk_car_", _ALNUM, 20, 64)
    yield _keys("elevenlabs-key", "sk_", _HEX, 40, 64, _END)
    yield _keys("provider-key", "sk_", _URL_SAFE, 32, 128, _END, may_be_words=True)
    yield _keys(
        "provider-key", "(?:gsk|ek|hf|r8|fw|jina|rpa|api_org)_", _ALNUM, 20, 256, may_be_words=True
    )
    yield _keys("provider-key", "hf_|api_org_", "[A-Za-z0-9]", 34, 34, _END)
    yield _keys("provider-key", "pcsk_", "[A-Za-z0-9_]", 20, 256, may_be_words=True)
    yield _keys(
        "provider-key", "(?:xai|pplx|tvly|csk|nvapi)-", _URL_SAFE, 20, 512, may_be_words=True
    )
    yield _keys("provider-key", "esecret_|tpuf_|crsr_", _ALNUM, 20, 128, may_be_words=True)
    yield _keys("provider-key", "bb_(?:live|test)_", _URL_SAFE, 16, 64, may_be_words=True)
    yield _keys("provider-key", "bu_", _URL_SAFE, 24, 64, _END, may_be_words=True)
    yield _keys("provider-key", "ak_", _URL_SAFE, 16, 64, _END, may_be_words=True)
    yield _keys("provider-key", "a[ks]-", _ALNUM, 20, 32, _END, may_be_words=True)
    yield _keys("provider-key", "key_", _HEX, 64, 128, _END)
    yield _keys("provider-key", "key_", _ALNUM, 96, 160, _END, may_be_words=True)
    yield _keys("provider-key", "(?:luma|llx)-", _URL_SAFE, 24, 160, may_be_words=True)
    yield KeyPattern(
        "provider-key",
        f"bce-v3{_SLASH}ALTAK-{_ALNUM}{{16}}",
        f"bce-v3{_SLASH}ALTAK-{_ALNUM}{{16,32}}{_SLASH}[0-9a-f]{{32,64}}",
    )
    yield KeyPattern(
        "provider-key",
        r"[0-9a-f]{4}\.[A-Za-z0-9]{16}",
        rf"[0-9a-f]{{32}}\.(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]*[A-Z]){_ALNUM}{{16}}(?![A-Za-z0-9_.-])",
        before=28,
    )
    yield KeyPattern(
        "provider-key",
        r"secret_[A-Za-z0-9_-]{16}",
        rf"secret_{_URL_SAFE}{{16,160}}\.{_ALNUM}{{16,64}}{_END}",
        may_be_words=True,
    )
    yield _keys("provider-key", "fc-", _HEX, 32, 32, _END)
    yield _keys("provider-key", "pa-", _URL_SAFE, 40, 64, _END, may_be_words=True)
    yield _keys("provider-key", "e2b_", _HEX, 40, 40, _END)
    yield _keys("provider-key", "apify_api_", _ALNUM, 30, 64)
    yield _keys("provider-key", "BSA", _URL_SAFE, 28, 28, _END_OF_BASE64, may_be_words=True)
    yield _keys("together-key", "tgp_v1_", _URL_SAFE, 20, 256)
    yield _keys("wandb-key", "wandb_v1_", _URL_SAFE, 40, 128)
    yield KeyPattern(
        "langsmith-key", "lsv2_(?:pt|sk)_[0-9a-f]{16}", "lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"
    )
    yield _keys("google-key", "AIza", _URL_SAFE, 35, 35, _END)
    yield _keys("google-key", r"AQ\.", _URL_SAFE, 40, 128, may_be_words=True)
    yield _keys("google-token", r"ya29\.", "[A-Za-z0-9._-]", 16, 2048)
    yield _keys("google-token", "1//0", _URL_SAFE, 40, 512)
    yield KeyPattern(
        "google-token",
        f"auth_tokens{_SLASH}[A-Za-z0-9_-]{{16}}",
        f"auth_tokens{_SLASH}({_URL_SAFE}{{16,512}})",
        may_be_words=True,
    )
    # Whoever has the handle of a Live session goes on with it.
    yield KeyPattern("session-handle", f"new_?[hH]andle{_QUOTED}", f"new_?[hH]andle{_HANDLE}")
    yield KeyPattern(
        "session-handle",
        f"session_?[rR]esumption{_QUOTE}",
        rf"session_?[rR]esumption{_QUOTE}{_BLANKS}:{_BLANKS}\{{[^{{}}]{{0,200}}?handle{_HANDLE}",
    )
    yield _keys("google-secret", "GOCSPX-", _URL_SAFE, 20, 64)


def _clouds() -> Iterator[KeyPattern]:
    yield _keys("aws-key-id", "AKIA|ASIA|ABIA|ACCA", _CAPITALS, 16, 16, _END)
    yield _keys("bedrock-key", "ABSK", _BASE64, 100, 300, f"={{0,2}}{_END_OF_BASE64}")
    yield _keys("bedrock-key", "bedrock-api-key-", _BASE64, 32, 4096, "={0,2}")
    yield KeyPattern("azure-key", "JQQJ9", f"{_ALNUM}{{52}}JQQJ9{_ALNUM}{{20,32}}{_END}", before=52)
    yield KeyPattern(
        "azure-secret",
        r"[0-9]Q~[A-Za-z0-9_~.-]{16}",
        r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])",
        before=3,
    )
    yield KeyPattern(
        "azure-devops-token",
        "AZDO[A-Za-z0-9]{4}",
        f"{_ALNUM}{{76}}AZDO{_ALNUM}{{4}}{_END}",
        before=76,
    )
    yield KeyPattern(
        "azure-devops-token", "[a-z2-7]{40}", f"[a-z2-7]{{52}}{_END}", may_be_words=True
    )
    yield _keys("alibaba-key-id", "LTAI", _ALNUM, 12, 24, _END_OF_BASE64, may_be_words=True)
    yield _keys("digitalocean-token", "do[opr]_v1_", _HEX, 64, 64)
    yield _keys("databricks-token", "dapi", _HEX, 32, 32, f"(?:-[0-9])?{_END}")
    yield _keys("heroku-key", "HRKU-", _URL_SAFE, 36, 128)
    yield _keys("fly-token", "fo1_", _URL_SAFE, 40, 128)
    yield _keys("fly-token", "fm[12][a-z]?_", _BASE64, 100, 4096, "={0,3}")
    yield _keys("netlify-token", "nfp_", _ALNUM, 36, 64)
    yield _keys("render-key", "rnd_", _ALNUM, 24, 64, may_be_words=True)
    yield _keys("vercel-token", "vc[aikpr]_", _ALNUM, 20, 128, may_be_words=True)
    yield _keys("neon-key", "napi_", _ALNUM, 24, 128, may_be_words=True)
    yield _keys("cloudflare-token", "cf(?:at|k|ut)_", _URL_SAFE, 24, 128, may_be_words=True)
    yield _keys("tencent-key-id", "AKID", _ALNUM, 32, 32, _END, may_be_words=True)
    yield _keys("tailscale-key", "tskey-[a-z]{2,12}-", "[A-Za-z0-9-]", 20, 128, may_be_words=True)
    yield _keys("cloudflare-key", r"v1\.0-", _HEX, 24, 24, "-[0-9a-f]{146}")
    yield _keys("supabase-key", "sbp_(?:oauth_)?(?:v0_)?", _HEX, 40, 40, _END)
    yield _keys("supabase-key", "sb_secret_", _URL_SAFE, 20, 128)
    yield _keys("planetscale-token", "pscale_(?:tkn|pw|oauth)_", "[A-Za-z0-9_.=-]", 32, 64)
    yield _keys("doppler-token", r"dp\.(?:pt|ct|sa|scim|audit)\.", _ALNUM, 40, 44)
    yield _keys("doppler-token", r"dp\.st\.(?:[a-z0-9_-]{2,35}\.)?", _ALNUM, 40, 44)
    yield _keys("vault-token", r"hv[bsr]\.", _URL_SAFE, 20, 512, may_be_words=True)
    yield KeyPattern(
        "terraform-token", r"\.atlasv1\.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}", before=14
    )
    yield _keys("pulumi-token", "pul-", _HEX, 40, 40, _END)
    yield _keys("dynatrace-token", r"dt0[a-z][0-9]{2}\.", "[A-Z2-7]", 24, 24, r"\.[A-Z2-7]{64}")
    yield _keys("onepassword-token", "ops_eyJ", _BASE64, 100, 4096, "={0,3}")
    yield _keys("age-key", "AGE-SECRET-KEY-1", _CAPITALS, 58, 58)


def _code() -> Iterator[KeyPattern]:
    yield _keys("github-token", "gh[pousr]_", _ALNUM, 20, 255)
    yield _keys("github-token", "github_pat_", "[A-Za-z0-9_]", 22, 255)
    yield _keys(
        "gitlab-token",
        "gl(?:pat|ptt|rt|rtr|dt|ft|cbt|soat|imt|agent|ffct|oas|wt)-",
        "[A-Za-z0-9_.-]",
        20,
        512,
        may_be_words=True,
    )
    yield _keys("bitbucket-token", "ATBB", _ALNUM, 32, 32, _END_OF_BASE64)
    yield _keys("npm-token", "npm_", _ALNUM, 20, 256, may_be_words=True)
    yield _keys("pypi-token", "pypi-", _URL_SAFE, 20, 512, may_be_words=True)
    yield _keys("rubygems-key", "rubygems_", _HEX, 48, 48)
    yield _keys("nuget-key", "oy2", _SMALL, 43, 43, _END_OF_BASE64)
    yield _keys("crates-token", "cio", _ALNUM, 32, 32, _END_OF_BASE64, may_be_words=True)
    yield _keys("docker-token", "dckr_(?:pat|oat)_", _URL_SAFE, 27, 64)
    yield _keys("buildkite-token", "bk(?:ua|at|ct|pt)_", _HEX, 40, 40)
    yield _keys("circleci-token", "CCI(?:PAT|PRJ)_", _ALNUM, 22, 22, "_[0-9a-f]{40}")
    yield _keys("sonar-token", "sq[pua]_", _HEX, 40, 40, _END)
    yield _keys("sourcegraph-token", "sgp_(?:local_|[0-9a-f]{16}_)?", _HEX, 40, 40, _END)
    yield _keys("postman-key", "PMAK-", _HEX, 24, 24, "-[0-9a-f]{34}")
    yield _keys("prefect-key", "pn[ub]_", _ALNUM, 36, 36, _END, may_be_words=True)
    yield _keys("sentry-token", "sntrys_", "[A-Za-z0-9+/=_-]", 40, 1024)
    yield _keys("sentry-token", "sntryu_", _HEX, 64, 64)
    yield _keys("grafana-token", "glsa_", _ALNUM, 32, 32, "_[0-9a-f]{8}")
    yield _keys("grafana-token", "glc_eyJ", _BASE64, 40, 512, "={0,3}")
    yield _keys("newrelic-key", "NRAK-", _CAPITALS, 27, 27)
    yield _keys("posthog-key", "phx_", _ALNUM, 40, 64)


def _work() -> Iterator[KeyPattern]:
    yield _keys(
        "slack-token", "(?:xox[abcepors]|xapp)-", "[A-Za-z0-9-]", 10, 255, may_be_words=True
    )
    yield _keys("slack-token", "xoxd-", "[A-Za-z0-9+/%_-]", 20, 512, "=?", may_be_words=True)
    yield KeyPattern(
        "slack-webhook",
        f"services{_SLASH}T[A-Z0-9]{{8,12}}{_SLASH}B[A-Z0-9]{{8,12}}{_SLASH}",
        f"services{_SLASH}T[A-Z0-9]{{8,12}}{_SLASH}B[A-Z0-9]{{8,12}}{_SLASH}({_ALNUM}{{20,30}})",
    )
    yield KeyPattern(
        "slack-webhook",
        f"(?:workflows|triggers){_SLASH}[TE][A-Z0-9]{{8,12}}{_SLASH}[A-Z0-9]{{8,14}}{_SLASH}",
        f"(?:workflows|triggers){_SLASH}[TE][A-Z0-9]{{8,12}}{_SLASH}[A-Z0-9]{{8,14}}{_SLASH}"
        f"(?:[0-9]{{10,22}}{_SLASH})?({_ALNUM}{{20,40}})",
    )
    yield KeyPattern(
        "discord-webhook",
        f"webhooks{_SLASH}[0-9]{{5,20}}{_SLASH}[A-Za-z0-9_-]{{16}}",
        f"webhooks{_SLASH}[0-9]{{5,20}}{_SLASH}({_URL_SAFE}{{60,80}})",
    )
    yield KeyPattern(
        "teams-webhook",
        f"IncomingWebhook{_SLASH}[0-9a-f]{{16}}",
        f"IncomingWebhook{_SLASH}([0-9a-f]{{32}})",
    )
    yield KeyPattern(
        "telegram-token",
        "(?:bot)?[0-9]{8,10}(?::|%3[Aa])[A-Za-z0-9_-]{16}",
        f"(?:bot([0-9]{{8,10}}(?::|%3[Aa]){_URL_SAFE}{{30,50}})"
        f"|[0-9]{{8,10}}(?::|%3[Aa])AA{_URL_SAFE}{{33}}{_END})",
    )
    yield KeyPattern(
        "discord-token",
        r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{16}",
        rf"[MNO]{_URL_SAFE}{{23,27}}\.{_URL_SAFE}{{6}}\.{_URL_SAFE}{{27,38}}{_END}",
    )
    yield _keys("notion-token", "ntn_", _ALNUM, 40, 64, may_be_words=True)
    yield _keys("notion-token", "secret_", _ALNUM, 43, 43, _END, may_be_words=True)
    yield _keys("linear-token", "lin_(?:api|oauth)_", _ALNUM, 40, 64)
    yield _keys("figma-token", "fig[dor]h?_", _URL_SAFE, 32, 64, may_be_words=True)
    yield _keys("atlassian-token", "AT[AC]TT3[a-z]", "[A-Za-z0-9_=-]", 100, 512)
    yield _keys("airtable-token", "pat", _ALNUM, 14, 14, r"\.[0-9a-f]{64}")
    yield KeyPattern(
        "asana-token",
        r"[12]/[0-9]{10,16}[/:]",
        r"[12]/[0-9]{10,20}(?:/[0-9]{10,20})?:[0-9a-f]{32}",
    )
    yield _keys("typeform-token", "tfp_", "[A-Za-z0-9_.=-]", 40, 64, may_be_words=True)
    yield KeyPattern(
        "hubspot-token", "pat-(?:na|eu|ap)[0-9]-[0-9a-f]{8}-", f"pat-[a-z]{{2}}[0-9]-{_UUID}"
    )
    yield _keys("dropbox-token", r"sl\.(?:u\.)?", _URL_SAFE, 100, 2048)
    yield _keys("contentful-token", "CFPAT-", _URL_SAFE, 43, 64)


def _money_and_mail() -> Iterator[KeyPattern]:
    yield _keys("stripe-key", "[sr]k_(?:live|test|prod)_", _ALNUM, 16, 256)
    yield _keys("webhook-secret", "whsec_", _BASE64, 24, 128, "={0,2}")
    yield KeyPattern(
        "stripe-secret",
        "(?:pi|seti|src|cs)_(?:test_|live_)?[A-Za-z0-9]{8,80}_secret_",
        "(?:pi|seti|src|cs)_(?:test_|live_)?[A-Za-z0-9]{8,80}_secret_((?:[A-Za-z0-9_-]|%2[FfBb]){8,512})",
    )
    yield _keys("shopify-token", "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]", 32, 64)
    yield _keys("square-token", "sq0(?:atp|csp|idp)-", _URL_SAFE, 22, 60)
    yield KeyPattern(
        "plaid-token",
        "access-(?:sandbox|development|production)-[0-9a-f]{8}-",
        f"access-(?:sandbox|development|production)-{_UUID}",
    )
    yield _keys("facebook-token", "EAA[A-Za-z]", _ALNUM, 80, 400, _END_OF_BASE64)
    yield _keys("twilio-key", "SK", _HEX, 32, 32, _END)
    yield KeyPattern(
        "sendgrid-key",
        r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}",
        r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    )
    yield _keys("mailgun-key", "key-", _HEX, 32, 32, _END)
    yield KeyPattern(
        "mailchimp-key", "[0-9a-f]{32}-us[0-9]", f"[0-9a-f]{{32}}-us[0-9]{{1,2}}{_END}"
    )
    yield _keys("brevo-key", "xkeysib-", _HEX, 64, 64, "-[A-Za-z0-9]{16}")
    yield _keys("resend-key", "re_", _ALNUM, 8, 8, f"_{_ALNUM}{{24}}{_END}", may_be_words=True)
    yield _keys("easypost-key", "EZ[AT]K", _ALNUM, 54, 54, _END_OF_BASE64)


_PEM_ENDS = r"-----(?:{})(?: |\+|%20)(?:[A-Z0-9]+(?: |\+|%20)){{0,3}}PRIVATE(?: |\+|%20)KEY(?:(?: |\+|%20)BLOCK)?-----"
_PEM_LINES = r"(?:[A-Za-z0-9+/=\s]|\\+[nr/]|%[0-9A-Fa-f]{2})"


def _formats() -> Iterator[KeyPattern]:
    yield KeyPattern(
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8}",
        r"eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,16384}\.[A-Za-z0-9_-]{8,4096}",
    )
    yield KeyPattern(
        "jwe",
        r"eyJ[A-Za-z0-9_-]{8}",
        # No separate key where both sides share a key.
        r"eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{0,1024}\.[A-Za-z0-9_-]{12,32}"
        r"\.[A-Za-z0-9_-]{1,16384}\.[A-Za-z0-9_-]{16,64}",
    )
    yield KeyPattern(
        "private-key",
        _PEM_ENDS.format("BEGIN"),
        # To the end line, or as far as pasted; never beyond the enclosing string.
        rf'{_PEM_ENDS.format("BEGIN")}(?:(?:[^"-]|-(?!----)){{16,16384}}{_PEM_ENDS.format("END")}'
        rf"|{_PEM_LINES}{{64,16384}})",
    )


KEY_PATTERNS = (
    *_ai_services(),
    *_clouds(),
    *_code(),
    *_work(),
    *_money_and_mail(),
    *_formats(),
)
"""Every form, the more exact before the more general."""
