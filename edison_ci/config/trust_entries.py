"""Entries of .edison/trust.yaml: keys, services, programs, and identities in place of keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edison_ci.config.trust import HeaderName, Host, ServicePath
from edison_ci.shape import UNIQUE, EnvName, Name, Shape, TextPattern, items


class TrustedKey(Shape):
    """A key and the hosts it may be sent to."""

    env: EnvName = Field(description="Name of the variable that holds the key.")
    hosts: Annotated[tuple[Host, ...], items(1, 50), UNIQUE] = Field(
        description="Exact scheme, host and port."
    )


class ProgramLimits(Shape):
    """What each process of a program may use, with everything that it starts."""

    memory_mb: int = Field(2_048, ge=16, le=1_000_000, description="Memory in MB.")
    processes: int = Field(256, ge=1, le=100_000, description="Processes; threads count.")
    files_mb: int = Field(
        1_024, ge=1, le=1_000_000, description="Files that it has written, in MB."
    )


_Folder = Annotated[
    str,
    Field(max_length=1_000),
    TextPattern(
        r"/[^\0\n]+", "an absolute path", "write the path from the root: /opt/models", "path"
    ),
]


class TrustedService(Shape):
    """A host that http models call, and what they may send it."""

    host: Host = Field(description="Exact scheme, host and port.")
    paths: Annotated[tuple[ServicePath, ...], items(0, 50), UNIQUE] = Field(
        (),
        description="Paths at or below which they may send keys; default: those that models have "
        "on the default branch.",
    )
    headers: Annotated[tuple[HeaderName, ...], items(0, 50), UNIQUE] = Field(
        (), description="Headers that models.yaml may set, besides those of the closed list."
    )


class TrustedProgram(Shape):
    """A program of the repository that is called as a model, and what it gets."""

    model: Name = Field(description="Its name in models.yaml.")
    env: Annotated[tuple[EnvName, ...], items(0, 50), UNIQUE] = Field(
        (), description="Variables that it gets, besides PATH and the like."
    )
    network: bool = Field(False, description="Whether it uses the network.")
    environment: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None,
        description="Environment of GitHub: a pull request that changes the program is run with "
        "all this once a person has approved the job.",
    )
    folders: Annotated[tuple[_Folder, ...], items(0, 50), UNIQUE] = Field(
        (), description="Folders of the machine that it sees in its sandbox, read-only."
    )
    limits: ProgramLimits = Field(
        default_factory=ProgramLimits.model_construct, description="What it may use."
    )

    @property
    def needs_nothing(self) -> bool:
        """Whether it works without keys and network, so that a changed one may run, too."""
        return not self.env and not self.network


_Uuid = Annotated[
    str,
    TextPattern(
        r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "an id of Microsoft Entra",
        "write it as 00000000-0000-0000-0000-000000000000",
        "identity",
    ),
]


class AwsIdentity(Shape):
    """A role of AWS that jobs of GitHub assume."""

    role: Annotated[
        str,
        TextPattern(
            r"arn:aws:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}",
            "the ARN of a role",
            "write arn:aws:iam::ACCOUNT:role/NAME",
            "identity",
        ),
    ] = Field(description="ARN of the role.")


class GoogleIdentity(Shape):
    """A pool of workload identities of Google that jobs of GitHub belong to."""

    pool: Annotated[
        str,
        TextPattern(
            r"projects/[0-9]{1,20}/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}"
            r"/providers/[a-z0-9-]{4,32}",
            "a provider of a pool",
            "write projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER",
            "identity",
        ),
    ] = Field(description="Provider of the pool, as Google Cloud names it.")
    service_account: (
        Annotated[
            str,
            TextPattern(
                r"[a-z0-9-]{1,63}@[a-z0-9.-]{1,100}\.gserviceaccount\.com",
                "a service account",
                "write NAME@PROJECT.iam.gserviceaccount.com",
                "identity",
            ),
        ]
        | None
    ) = Field(None, description="Service account to act as; default: the identity itself.")


class AzureIdentity(Shape):
    """An application of Microsoft Entra that jobs of GitHub act as."""

    tenant: _Uuid = Field(description="Id of the directory.")
    client: _Uuid = Field(description="Id of the application.")
    hosts: Annotated[tuple[Host, ...], items(1, 50), UNIQUE] = Field(
        description="Hosts of Azure that get its token."
    )


class TrustedIdentities(Shape):
    """What models are called with in jobs of GitHub, where no key is set."""

    bedrock: AwsIdentity | None = Field(None, description="Role for models of Bedrock.")
    vertex: GoogleIdentity | None = Field(None, description="Identity for models of Vertex.")
    azure: AzureIdentity | None = Field(None, description="Identity for models of Azure.")
