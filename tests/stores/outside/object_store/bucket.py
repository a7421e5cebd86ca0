"""Calls of an object store, as S3 has them, but without signatures."""

import re
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

from tapeway.errors import StoreAway, StoreError

_LISTED = ("Key", "Size", "LastModified")


class Found(NamedTuple):
    """An object in a list: key, bytes, time of creation, and the number at the end of the key."""

    key: str
    size: int
    at: str
    number: int


class Bucket(NamedTuple):
    """The objects of a bucket. Each call waits for the network, in a thread. Raises StoreError."""

    host: str
    name: str

    def find(self, prefix: str) -> list[Found]:
        """The objects with this prefix, sorted by key."""
        found: list[Found] = []
        more = True
        while more:
            after = found[-1].key if found else ""
            query = urlencode({"list-type": 2, "prefix": prefix, "start-after": after})
            text = self._ask("GET", f"?{query}")[1]
            page = ElementTree.fromstring(text)  # noqa: S314 - from the user's own store
            for item in page.iterfind("{*}Contents"):
                key, size, at = [item.findtext(f"{{*}}{tag}", "") for tag in _LISTED]
                found.append(Found(key, int(size), at, int(re.split("[!.]", key)[-1])))
            more = page.findtext("{*}IsTruncated") == "true"
        return found

    def get(self, key: str) -> bytes | None:
        """The content of an object, None where there is none."""
        status, content = self._ask("GET", f"/{key}", allowed=404)
        return None if status == 404 else content

    def read(self, prefix: str) -> dict[int, bytes]:
        """The contents of all objects with this prefix by number, in order, as of one moment."""
        while True:
            listed = self.find(prefix)
            with ThreadPoolExecutor(16) as threads:
                contents = threads.map(self.get, [item.key for item in listed])
                pairs = zip(listed, contents, strict=True)
                found = {item.number: content for item, content in pairs if content is not None}
            # A cassette that was replaced meanwhile has lost some of the listed objects.
            if len(found) == len(listed):
                return found

    def create(self, key: str, content: bytes) -> bool:
        """Make an object. False if the key is taken: nothing changed."""
        return self._ask("PUT", f"/{key}", content, {"If-None-Match": "*"}, 412)[0] != 412

    def put(self, key: str, content: bytes) -> None:
        """Make or replace an object."""
        self._ask("PUT", f"/{key}", content)

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        self._ask("DELETE", f"/{key}")

    def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        allowed: int = 200,
    ) -> tuple[int, bytes]:
        connection = HTTPConnection(self.host, timeout=30)
        try:
            connection.request(method, f"/{self.name}{path}", content, headers or {})
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (OSError, HTTPException) as exc:
            raise StoreAway(f"{self.host} does not answer ({exc}): see whether it runs") from exc
        finally:
            connection.close()
        if status not in (200, 204, allowed):
            call = f"{method} /{self.name}{path}"
            raise StoreError(f"{self.host} answered {call} with {status}: see its log", status=503)
        return status, answer
