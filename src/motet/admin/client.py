"""The client of a member's admin interface, for `motet probe` and for the member that builds the overview.

The server may be anything, so an answer is limited in time and in bytes.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass

from motet.errors import AdminRefusedError, AdminUnreachableError, ConfigError, NotAMemberError, OperationRefusedError
from motet.log.service.validated_json import from_json, long_text, to_json
from motet.protocol.core.identity import Endpoint

MOST_ANSWER_BYTES = 4 << 20
ASK_S = 5.0
OPERATE_S = 60.0  # a snapshot waits for every member


@dataclass(frozen=True, slots=True)
class AdminClient:
    endpoint: Endpoint
    token: str | None = None
    most_bytes: int = MOST_ANSWER_BYTES

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("the token has characters that no header can carry; tokens are printable ASCII")

    def stats(self, timeout_s: float = ASK_S) -> dict[str, object]:
        answer = self._ask("GET", "/stats", None, timeout_s)
        if "group" not in answer or "view" not in answer:
            raise NotAMemberError(f"what listens on {self.endpoint} is not a Motet member's admin port")
        return answer

    def health(self, timeout_s: float = ASK_S) -> dict[str, object]:
        return self._ask("GET", "/health", None, timeout_s)

    def operate(self, name: str, arguments: Mapping[str, object], timeout_s: float = OPERATE_S) -> dict[str, object]:
        return self._ask("POST", f"/operate/{name}", to_json(dict(arguments)), timeout_s)

    def _ask(self, method: str, path: str, body: bytes | None, timeout_s: float) -> dict[str, object]:
        status, data = self._exchange(method, path, body, timeout_s)
        try:
            answer = from_json(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise NotAMemberError(f"what listens on {self.endpoint} is not a Motet member's admin port")
        if status == http.client.UNAUTHORIZED:
            raise AdminRefusedError(f"{self.endpoint} refused: {long_text(answer, 'error')}")
        if status >= 400 and "error" in answer:
            raise OperationRefusedError(f"{self.endpoint} says: {long_text(answer, 'error')}")
        return answer

    def _exchange(self, method: str, path: str, body: bytes | None, timeout_s: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, self._headers(body))
            with connection.getresponse() as response:
                return response.status, self._read(response, time.monotonic() + timeout_s)
        except TimeoutError as error:
            raise AdminUnreachableError(
                f"{self.endpoint} did not answer within {timeout_s:g} s; is the process alive, and the address right?"
            ) from error
        except http.client.HTTPException as error:
            raise NotAMemberError(
                f"what listens on {self.endpoint} does not speak HTTP; is it a member's admin port, not its data port?"
            ) from error
        except OSError as error:
            raise AdminUnreachableError(
                f"nothing listens on {self.endpoint} ({error.strerror or error}); is the member running, and was it "
                "started with an admin port?"
            ) from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        chunks, size = [], 0
        while chunk := response.read1(65536):
            size += len(chunk)
            chunks.append(chunk)
            if size > self.most_bytes or time.monotonic() > deadline:
                raise NotAMemberError(f"the answer of {self.endpoint} is too long to be that of a Motet member")
        return b"".join(chunks)

    def _headers(self, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def parse_endpoint(given: str) -> Endpoint:
    """`host:port`, `[::1]:port`, `:port` for this machine; or the address as a browser shows it."""
    host, separator, port = given.strip().removeprefix("http://").rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not separator or not port.isdecimal() or not 0 <= int(port) <= 0xFFFF:
        raise ConfigError(f"{given!r} is not an address; write HOST:PORT, for example 127.0.0.1:9001")
    return Endpoint(host, int(port))
