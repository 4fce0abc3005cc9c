"""TLS is verified unless a user says otherwise."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import openai
import pytest
from aiohttp import web

from qreward.client.tls import tls_context
from qreward.errors import ConfigError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="the test's certificate is made by openssl")


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A self-signed certificate for localhost and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


@pytest.fixture
async def secure_url(pem):
    """A server with that certificate."""

    async def answer(_request):
        return web.json_response({"choices": [{"message": {"content": "safe"}}]})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, pem))
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://localhost:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


async def test_unknown_certificates_are_refused(secure_url, proxy_for, hello):
    """By default a server whose certificate nobody vouches for is not talked to."""
    with pytest.raises(openai.APIConnectionError, match=r"(?i)certificate"):
        await proxy_for(secure_url).chat_completion(hello, "m")
    with pytest.raises(openai.APIConnectionError):
        await proxy_for(secure_url).client.models.list()


async def test_ways_to_trust(secure_url, proxy_for, hello, pem):
    """A CA file, a context of one's own, and verify_ssl=False, where it is asked for, let the call through."""
    for verify in (str(pem[0]), pem[0], tls_context(pem[0]), False):
        assert await proxy_for(secure_url, verify_ssl=verify).chat_completion(hello, "m") == "safe"


async def test_a_file_that_is_no_certificate(secure_url, proxy_for, hello, tmp_path):
    """The message names the file."""
    bad = tmp_path / "ca.pem"
    for content in (None, "nothing"):
        if content:
            bad.write_text(content)
        with pytest.raises(ConfigError, match=r"ca\.pem"):
            await proxy_for(secure_url, verify_ssl=bad).chat_completion(hello, "m")


def test_the_default_trusts_somebody():
    """The default context requires and checks certificates and host names."""
    context = tls_context(True)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert tls_context(False).verify_mode is ssl.CERT_NONE
