"""A LogStore for delta-spark that is safe for several processes on a local disk.

delta-spark's own LogStore checks whether the file exists and then renames, under a lock that only the threads of one
process share. It overwrites a commit that another process makes in between. This LogStore creates a hard link to a
complete file, which fails if the name exists. The Java compiler that comes with Spark compiles it.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from importlib.util import find_spec
from pathlib import Path

STORE = "deltic.ExclusiveLogStore"
SOURCE = """
package deltic;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

public class ExclusiveLogStore extends io.delta.storage.HDFSLogStore {
    public ExclusiveLogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append((String) actions.next()).append('\\n');
        }
        java.nio.file.Path target = Paths.get(path.toUri().getPath());
        java.nio.file.Path whole = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        Files.write(whole, lines.toString().getBytes(StandardCharsets.UTF_8));
        try {
            Files.createLink(target, whole);
        } finally {
            Files.delete(whole);
        }
    }
}
"""


def build(folder: Path, jars: list[Path]) -> Path:
    """Compile the LogStore into a jar."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    beside = os.pathsep.join(map(str, [*(Path(pyspark.origin).parent / "jars").glob("*.jar"), *jars]))
    source, classes, jar = folder / "ExclusiveLogStore.java", folder / "classes", folder / "exclusive.jar"
    source.write_text(SOURCE)
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    compiler = "org.codehaus.commons.compiler.samples.CompilerDemo"
    subprocess.run(
        [java, "-cp", beside, compiler, "-d", classes, "-classpath", beside, source], check=True, timeout=120
    )
    with zipfile.ZipFile(jar, "w") as archive:
        for path in classes.rglob("*.class"):
            archive.write(path, path.relative_to(classes))
    return jar
