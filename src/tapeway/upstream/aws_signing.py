"""Signs requests for AWS anew, with the proxy's own credentials (Signature Version 4).

botocore finds the credentials as every AWS SDK does (environment, profile, SSO, the role of a machine
or a pod) and makes the signature. It is an optional package: `pip install 'tapeway[aws]'`.
"""

import asyncio
import hashlib
from typing import Any

from tapeway.body_files import body_pieces
from tapeway.core.http.sigv4 import (
    UNSIGNED_PAYLOAD,
    UNSIGNED_TRAILER,
    ClientSignature,
    Signing,
    without_signature,
)
from tapeway.core.model.messages import BodyFile, Headers
from tapeway.errors import UpstreamError

_SIGNED = frozenset({b"content-type", b"content-md5", b"range"})
"""Signed besides `host` and `x-amz-*`. Further headers may change on the way to a service."""


class AwsSigner:
    """Signs with one chain of credentials, searched at the first request."""

    def __init__(self) -> None:
        self._session: Any = None

    async def sign(
        self,
        signing: Signing,
        client: ClientSignature,
        *,
        method: str,
        base: str,
        target: str,
        headers: Headers,
        body: bytes | BodyFile,
    ) -> tuple[str, Headers]:
        """Target and header fields of a request to `base` (scheme and host), with a new signature.

        Raises UpstreamError (502 `signing_failed`) before anything is sent.
        """
        if client.refusal:
            raise signing_failed(f"{client.refusal}, and cannot be signed anew")
        service, region = signing.service or client.service, signing.region or client.region
        if not service or not region:
            raise signing_failed("its signature names no service and region; give --sign them")
        # The chain may ask a machine's own service, or run a program.
        return await asyncio.to_thread(
            self._sign, service, region, client.payload, method, base, target, headers, body
        )

    def _sign(
        self,
        service: str,
        region: str,
        payload: bytes,
        method: str,
        base: str,
        target: str,
        headers: Headers,
        body: bytes | BodyFile,
    ) -> tuple[str, Headers]:
        credentials = self._credentials()
        try:
            from botocore.auth import S3SigV4Auth, SigV4Auth
            from botocore.awsrequest import AWSRequest
        except ModuleNotFoundError as exc:
            raise _not_installed() from exc
        target, headers = without_signature(target, headers)
        digest = payload if payload in (UNSIGNED_PAYLOAD, UNSIGNED_TRAILER) else _sha256(body)
        # S3 alone takes the path unchanged; every other service encodes the path once more.
        class_of = S3SigV4Auth if service.startswith("s3") else SigV4Auth

        class Auth(class_of):  # type: ignore[misc, valid-type] # chosen a line above
            def payload(self, request: object) -> str:
                return digest.decode()

        request = AWSRequest(method=method, url=f"{base}{target}")
        for name, value in headers:
            if name.lower() in _SIGNED or name.lower().startswith(b"x-amz-"):
                request.headers.add_header(name.decode("latin-1"), value.decode("latin-1"))
        request.headers["X-Amz-Content-SHA256"] = digest.decode()
        Auth(credentials, service, region).add_auth(request)
        made = ("X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-SHA256", "Authorization")
        added = [
            (name.encode(), request.headers[name].encode())
            for name in made
            if name in request.headers
        ]
        return target, (*headers, *added)

    def _credentials(self) -> Any:
        try:
            from botocore.exceptions import BotoCoreError
            from botocore.session import Session
        except ModuleNotFoundError as exc:
            raise _not_installed() from exc
        if self._session is None:
            self._session = Session()
        try:
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except BotoCoreError as exc:
            # The text may hold the output of a credential program.
            raise signing_failed(f"AWS credentials cannot be read ({type(exc).__name__})") from None
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise signing_failed(
                "tapeway found no AWS credentials to sign it with: give its process "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role"
            )
        return frozen


def signing_failed(why: str) -> UpstreamError:
    """The error for a request that cannot be signed anew, before anything is sent."""
    return UpstreamError(f"the request to AWS was not sent: {why}", code="signing_failed")


def _not_installed() -> UpstreamError:
    return signing_failed(
        "it must be signed anew, for which botocore is missing: pip install 'tapeway[aws]'"
    )


def _sha256(body: bytes | BodyFile) -> bytes:
    digest = hashlib.sha256()
    for piece in body_pieces(body) if isinstance(body, BodyFile) else (body,):
        digest.update(piece)
    return digest.hexdigest().encode()
