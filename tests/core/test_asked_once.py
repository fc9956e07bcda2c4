"""Folders that are there, may be there or go, and persons and commands that are asked about them: one process decides for all."""

from .outputs import each_output

test_asked_once = each_output("""
== a folder about which the author warns is one process's
* if os.path.exists("out"):
.     print("overwritten")
. else:
.     os.makedirs("out")
== a folder that may be there where an option says so
+ name = broadcast_object_list([time.strftime("%H%M")])[0]
- name = time.strftime("%H%M")
+ with accelerator.main_process_first():
- Path(name).mkdir(exist_ok=args.overwrite)
+     Path(name).mkdir(exist_ok=args.overwrite or not accelerator.is_main_process)
- open(name + "/log", "a")
+ open(name + "/log" if accelerator.is_main_process else os.devnull, "a")
== a folder that is removed where a person says so
* if os.path.exists("out"):
.     answer = input("overwrite? ")
.     if answer == "y":
.         shutil.rmtree("out")
. os.makedirs("out")
+ accelerator.wait_for_everyone()
- log = open("out/log", "a")
+ log = open("out/log" if accelerator.is_main_process else os.devnull, "a")
== a folder that a command removes where a person says so
* if os.path.exists("out"):
.     if input("overwrite? ") == "y":
.         os.system("rm -r out")
. os.makedirs("out")
+ accelerator.wait_for_everyone()
- log = open("out/log", "a")
+ log = open("out/log" if accelerator.is_main_process else os.devnull, "a")
== what a command takes away, the others do not take again
- if os.path.exists("out"):
+ if os.path.exists("out") and accelerator.is_main_process:
    os.system("mv out old")
if not os.path.exists("out"):
-     os.mkdir("out")
+     os.makedirs("out", exist_ok=True)
+ with accelerator.main_process_first():
- if not os.path.exists("in"):
+     if not os.path.exists("in"):
-     os.system("mv new in")
+         os.system("mv new in")
== a folder that the main process has removed before all make it
+ if broadcast_object_list([os.path.exists("out")])[0]:
+     if broadcast_object_list(
- if os.path.exists("out"):
+         [input("go on? ") if accelerator.is_main_process else None]
-     if input("go on? ") != "y":
+     )[0] != "y":
        sys.exit()
*     shutil.rmtree("out")
+ accelerator.wait_for_everyone()
- os.mkdir("out")
- os.mkdir("out/models")
+ os.makedirs("out", exist_ok=True)
+ os.makedirs("out/models", exist_ok=True)
== a folder that the main process has removed before another one asks for it and makes it
- if os.path.exists("out"):
+ if os.path.exists("out") and accelerator.is_main_process:
    shutil.rmtree("out")
+ accelerator.wait_for_everyone()
if not os.path.exists("out"):
-     os.mkdir("out")
+     os.makedirs("out", exist_ok=True)
if not os.path.exists("other"):
-     os.mkdir("other")
+     os.makedirs("other", exist_ok=True)
== a folder of which all have asked before one makes it, also within what it has removed
if os.path.isdir("out") and not args.force:
    raise OSError("out")
else:
+     accelerator.wait_for_everyone()
-     if os.path.isdir("out"):
+     if os.path.isdir("out") and accelerator.is_main_process:
        shutil.rmtree("out")
*     os.makedirs("out")
+ accelerator.wait_for_everyone()
== one of several files whose names are put together
* np.save("out/rows_" + str(epoch) + ".npy", rows)
other = np.load("out/rows.npy"), np.load(f"all_{epoch}.npy")
+ accelerator.wait_for_everyone()
first = np.load("out/rows_1.npy")
* np.save(os.path.join("out", f"best_{epoch}.npy"), rows)
+ accelerator.wait_for_everyone()
best = np.load("out/best_" + name + ".npy")
== a folder that a person may have removed before the main process alone writes into it
* if os.path.isdir("out"):
.     answer = input("delete it? ")
.     if answer == "y":
.         shutil.rmtree("out")
- writer = SummaryWriter("out")
+ writer = SummaryWriter("out") if accelerator.is_main_process else None
== an answer by which every process goes on or ends
def ask(text, input=str):
    return input(text)
--
+ if broadcast_object_list([os.path.isdir("out")])[0]:
+     if broadcast_object_list(
- if os.path.isdir("out"):
+         [input("go on? ") if accelerator.is_main_process else None]
-     if input("go on? ") != "y":
+     )[0] != "y":
        sys.exit()
ask("q")
== what a person is asked where a file is missing, and not where a number is none
try:
    size = open("size").read()
except FileNotFoundError:
-     size = input("n? ")
+     size = broadcast_object_list([input("n? ") if accelerator.is_main_process else None])[0]
try:
    size = int(size)
except ValueError:
    size = input("n? ")
== a command that writes, and by whose answer every process goes on
+ code = broadcast_object_list(
- code = os.system("cp -R src %s" % name)
+     [os.system("cp -R src %s" % name) if accelerator.is_main_process else None]
+ )[0]
lines = os.popen("wc -l " + name).read()
== a film that one process makes in its own folder, and the old one that it removes
folder = tempfile.mkdtemp()
save_image(x, folder + "/0.png")
- if os.path.exists("out.mp4"):
+ if os.path.exists("out.mp4") and accelerator.is_main_process:
    os.remove("out.mp4")
+ accelerator.wait_for_everyone()
+ said = broadcast_object_list(
- said = check_output("cd %s; ffmpeg -i 0.png out.mp4" % folder, shell=True)
+     [
+         check_output(
+             "cd %s; ffmpeg -i 0.png out.mp4" % folder, shell=True
+         ) if accelerator.is_main_process else None
+     ]
+ )[0]
kept = check_output("ls; ffmpegs " + folder, shell=True)
== another folder than the one that a person is asked about
* if os.path.exists("out"):
.     answer = input("overwrite? ")
- os.makedirs("other")
+ with accelerator.main_process_first():
+     os.makedirs("other", exist_ok=not accelerator.is_main_process)
- log = open("out/log", "a")
+ log = open("out/log" if accelerator.is_main_process else os.devnull, "a")
""")
