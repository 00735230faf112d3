"""The storage of static files."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """WhiteNoise's storage, which also rewrites the imports between JavaScript modules.

    Without that a hashed module would import an unhashed one, which is not kept.
    """

    support_js_module_import_aggregation = True
