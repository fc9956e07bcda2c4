"""Finding, reading and writing files.

In: the paths of a command line. Out: each file's text (`discovery`, `reading`), notebooks as the text of their cells
(`notebooks`), the files of one project that belong together (`import_graph`, `project`, `agreement`), and bytes on the
disk, all or none (`transaction`). `workers` shares the files of a run among processes, `cache` remembers results.
It works on texts: what a script means, `core` knows. The rules import `notebooks` alone; the command and the reports
may import all of it.
"""
