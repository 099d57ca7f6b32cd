"""A Sigstore instance of the test's own: authority, logs, and bundles that the real ``sigstore`` package accepts.

Nothing is served: a bundle carries everything that verification asks for, and :func:`Instance.trust_config` says
whom to trust. Formats: RFC 6962 (certificate transparency), the documents of Rekor and Fulcio, and sigstore's
protobuf-specs (JSON).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ORIGIN = "rekor.test - 1"


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _octets(data: bytes) -> bytes:
    """A DER OCTET STRING."""
    length = bytes([len(data)]) if len(data) < 0x80 else b"\x82" + struct.pack(">H", len(data))
    return b"\x04" + length + data


@dataclass
class Instance:
    """Keys of an authority, a transparency log and a certificate log."""

    ca: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    log: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    certificates: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).replace(microsecond=0))

    def __post_init__(self) -> None:
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "test"),
                x509.NameAttribute(NameOID.COMMON_NAME, "authority"),
            ]
        )
        self.root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.ca.public_key())
            .serial_number(1)
            .not_valid_before(self.now - datetime.timedelta(days=1))
            .not_valid_after(self.now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.ca.public_key()), critical=False)
            .sign(self.ca, hashes.SHA256())
        )

    def trust_config(self) -> str:
        """Whom to trust, as ``--trust-config`` takes it."""
        valid = {"start": (self.now - datetime.timedelta(days=1)).isoformat().replace("+00:00", "Z")}

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, object]:
            return {
                "baseUrl": "https://log.test",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_der(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": valid,
                },
                "logId": {"keyId": _b64(hashlib.sha256(_der(key)).digest())},
            }

        chain = [{"rawBytes": _b64(self.root.public_bytes(serialization.Encoding.DER))}]
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
                "trustedRoot": {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [log(self.log)],
                    "ctlogs": [log(self.certificates)],
                    "certificateAuthorities": [
                        {
                            "subject": {"organization": "test", "commonName": "authority"},
                            "uri": "https://authority.test",
                            "certChain": {"certificates": chain},
                            "validFor": valid,
                        }
                    ],
                },
                "signingConfig": {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"},
            }
        )

    def bundle(self, data: bytes, *, identity: str, issuer: str) -> str:
        """A bundle for ``data``, signed by ``identity`` (an e-mail address), vouched for by ``issuer``."""
        signer = _key()
        certificate = self._certificate(signer, identity, issuer)
        signature = _sign(signer, data)
        digest = hashlib.sha256(data)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        body = _canonical(
            {
                "apiVersion": "0.0.1",
                "kind": "hashedrekord",
                "spec": {
                    "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
                    "signature": {"content": _b64(signature), "publicKey": {"content": _b64(pem)}},
                },
            }
        )
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {
                    "certificate": {"rawBytes": _b64(certificate.public_bytes(serialization.Encoding.DER))},
                    "tlogEntries": [self._entry(body)],
                },
                "messageSignature": {
                    "messageDigest": {"algorithm": "SHA2_256", "digest": _b64(digest.digest())},
                    "signature": _b64(signature),
                },
            }
        )

    def _entry(self, body: bytes) -> dict[str, object]:
        """The log's only entry, with the proof that it is there and the promise that it will be."""
        log_id = hashlib.sha256(_der(self.log)).digest()
        time = int(self.now.timestamp())
        leaf = hashlib.sha256(b"\0" + body).digest()
        note = f"{_ORIGIN}\n1\n{_b64(leaf)}\n"
        seal = _b64(log_id[:4] + _sign(self.log, note.encode()))
        promise = _canonical({"body": _b64(body), "integratedTime": time, "logID": log_id.hex(), "logIndex": 0})
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log_id)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": _b64(_sign(self.log, promise))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(leaf),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 {_ORIGIN.split(' ', maxsplit=1)[0]} {seal}\n"},
            },
            "canonicalizedBody": _b64(body),
        }

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.root.subject)
            .public_key(key.public_key())
            .serial_number(2)
            .not_valid_before(self.now - datetime.timedelta(minutes=5))
            .not_valid_after(self.now + datetime.timedelta(minutes=5))
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(identity)]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER, issuer.encode()), critical=False)
            .add_extension(
                x509.UnrecognizedExtension(_ISSUER_V2, b"\x0c" + bytes([len(issuer)]) + issuer.encode()),
                critical=False,
            )
        )
        return builder.add_extension(
            x509.UnrecognizedExtension(_SCT_LIST, self._timestamps(builder.sign(self.ca, hashes.SHA256()))),
            critical=False,
        ).sign(self.ca, hashes.SHA256())

    def _timestamps(self, certificate: x509.Certificate) -> bytes:
        """The certificate log's promise (RFC 6962, 3.2 and 3.3) about a certificate that does not carry it yet."""
        time = struct.pack(">Q", int(self.now.timestamp()) * 1000)
        body = certificate.tbs_certificate_bytes
        issuer = hashlib.sha256(_der(self.ca)).digest()
        signed = b"\0\0" + time + b"\0\1" + issuer + len(body).to_bytes(3, "big") + body + b"\0\0"
        signature = _sign(self.certificates, signed)
        log_id = hashlib.sha256(_der(self.certificates)).digest()
        promise = b"\0" + log_id + time + b"\0\0" + b"\x04\x03" + struct.pack(">H", len(signature)) + signature
        entry = struct.pack(">H", len(promise)) + promise
        return _octets(struct.pack(">H", len(entry)) + entry)


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
