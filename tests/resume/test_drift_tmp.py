import os
import torch, copy
from omegaconf import OmegaConf
from sweeper.config import Config
from sweeper.snapshot import Snapshot
from sweeper.training.build import build_step
from sweeper.data.digits import Digits
from sweeper.data.loader import Loader
from sweeper.data.sampler import GlobalSampler
def test_drift(make_run, monkeypatch):
    monkeypatch.setenv("SWEEPER_RUN_DIR","/tmp/x")
    [monkeypatch.setenv(k,v) for k,v in {"SWEEPER_RANK":"0","SWEEPER_WORLD_SIZE":"1","SWEEPER_LOCAL_RANK":"0","SWEEPER_RANKS_PER_NODE":"1","SWEEPER_ATTEMPT":"0"}.items()]
    torch.set_num_threads(1)
    o=("train.steps=100","batch.size=16","model.depth=1","lr=constant","train.max_grad_norm=null")
    a=make_run(*o); assert a.attempt(0)==[0]
    b=make_run(*o)
    print(b.attempt(0,"0:step43:signal"))
    snap=Snapshot.load(b.dir); print("step",snap.step)
    t=OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config),a.config))
    def make():
        s=build_step(t,torch.device("cpu")); tr=Digits("train")
        l=Loader(tr,s.objective,GlobalSampler(len(tr),16,0),0,prefetch=0); return s,l
    def go(s,l,n):
        out=[]
        for _ in range(n):
            x=next(l); out.append(s(x.micro_batches,x.weights,global_weight=16).loss.item())
        return out
    import sweeper.training.step as ts, sweeper.run as R
    from sweeper.place import Place
    for k,v in Place(b.dir,attempt=1).environment().items(): monkeypatch.setenv(k,v)
    monkeypatch.setenv("SWEEPER_DISTURB","")
    log=[];grads=[]
    orig=ts.TrainStep.__call__
    def spy(self,mb,w,*,global_weight=None):
        pre={k:v.clone() for k,v in self.model.state_dict().items()}
        ost={(i,k):v.clone() for i,e in self.update.optimizer.state_dict()["state"].items() for k,v in e.items()}
        g={}
        hs=[q.register_post_accumulate_grad_hook(lambda q,n=n: g.__setitem__(n,q.grad.clone())) for n,q in self.model.named_parameters() if q.requires_grad]
        def cap(name):
            def pre(mod,args):
                x=args[0]
                if name.endswith("linear") and x.grad_fn is not None:
                    x.grad_fn.register_hook(lambda gi,go: g.update({"gi "+name:gi[0].clone(),"go "+name:go[0].clone(),"st "+name:torch.tensor([*gi[0].stride(),*go[0].stride(),gi[0].data_ptr()%64,go[0].data_ptr()%64]).float()}))
                    sv=x.grad_fn._saved_self
                    def chk(gi,go,sv=sv,name=name):
                        m=torch.ops.aten.silu_backward(go[0],sv); m2=torch.ops.aten.silu_backward(go[0].clone(),sv.clone())
                        g["sv "+name]=sv.clone(); g["re "+name]=m
                        if len(log) in (43,50): print("CHK",len(log),name,torch.equal(m,gi[0]),torch.equal(m2,gi[0]),torch.equal(m,m2), torch.is_grad_enabled(), sv.data_ptr()%4096, go[0].data_ptr()%4096, gi[0].data_ptr()%4096)
                    x.grad_fn.register_hook(chk)
                    print(name,x.grad_fn, x.grad_fn._saved_self.stride(), x.grad_fn._saved_self.data_ptr()%64, x.shape) if len(log) in (43,50) else 0
                g["val "+name]=x.detach().clone()
                if x.requires_grad: x.register_hook(lambda gr: g.__setitem__("grad "+name,gr.clone())); g["gf "+name]=torch.zeros(1)
            return pre
        for nm,md in self.model.named_modules():
            if "modulation" in nm or nm in ("timestep","label"): hs.append(md.register_forward_pre_hook(cap(nm)))
        def post(mod,a,out): out.register_hook(lambda gr: g.__setitem__("dc",gr.clone()))
        hs.append(self.model.timestep.register_forward_hook(post))
        r=orig(self,mb,w,global_weight=global_weight)
        [h.remove() for h in hs]
        grads.append((g,{n:q.data_ptr()%64 for n,q in self.model.named_parameters()},{n:(x.data_ptr()%64,x.stride(),x.dtype) for n,x in mb[0].items()},torch.get_num_threads(), torch.is_deterministic() if hasattr(torch,"is_deterministic") else 0))
        post={k:v.clone() for k,v in self.model.state_dict().items()}
        ost2={(i,k):v.clone() for i,e in self.update.optimizer.state_dict()["state"].items() for k,v in e.items()}
        log.append((pre,ost,mb,w,global_weight,post,ost2,r.loss.item())); return r
    monkeypatch.setattr(ts.TrainStep,"__call__",spy)
    s,l=make(); go(s,l,50); L0=log[:]; log.clear()
    import shutil, sweeper.data.loader as LD
    snapbytes=(b.dir/"snapshot.pt").read_bytes() if (b.dir/"snapshot.pt").exists() else None
    names=[f.name for f in b.dir.iterdir()]; print(names)
    keep={f:(b.dir/f).read_bytes() for f in names if (b.dir/f).is_file()}
    def attempt(n,label):
        for f in list(b.dir.iterdir()):
            if f.name=="record.json": f.unlink()
        for f,c in keep.items(): (b.dir/f).write_bytes(c)
        for k in range(1,9): shutil.rmtree(b.dir/f"attempt{k}",ignore_errors=True)
        (b.dir/"attempt1").mkdir()
        log.clear(); R.run(t)
        x,y=L0[43],log[0]
        bad=[k for k in x[5] if not torch.equal(x[5][k],y[5][k])]
        print(label,len(bad),bad[:3])
    G0=grads[43]; nm="final.modulation.linear"; a0,v0=G0[0]["go "+nm],G0[0]["sv "+nm]; n0=torch.ops.aten.silu_backward(a0,v0)
    import threading, ctypes
    libm=ctypes.CDLL("libm.so.6")
    def mx():
        bf=ctypes.create_string_buffer(64); libm.fegetenv(bf); return hex(int.from_bytes(bf.raw[28:32],"little")), os.sched_getcpu() if hasattr(os,"sched_getcpu") else ctypes.CDLL(None).sched_getcpu()
    import sweeper.data.loader as LD
    def probe(label): print("MX",label,mx(),end=" ");print("PROBE",label,torch.are_deterministic_algorithms_enabled(),(torch.ops.aten.silu_backward(a0,v0)!=n0).sum().item(),torch.equal(torch.ops.aten.silu_backward(a0,v0),n0), torch.get_num_threads(), threading.current_thread().name)
    probe("before")
    def wrap(obj,name,label):
        o=getattr(obj,name)
        def f(*a,**k):
            probe(label+" in"); r=o(*a,**k); probe(label+" out"); return r
        monkeypatch.setattr(obj,name,f)
    wrap(R,"choose_device","choose"); wrap(R,"init_ranks","init_ranks"); wrap(R,"build_step","build"); wrap(R.Progress,"resume","resume"); wrap(R.Progress,"_load","load"); wrap(R.Progress,"_take_over","take");wrap(R._Rank,"_train","train")
    wrap(R.MemoryMeter,"start","meter"); 
    monkeypatch.setattr(ts.TrainStep,"__call__",orig)
    n=0
    def sp(self,*a,**k):
        global n
        probe("step in"); r=orig(self,*a,**k); probe("step out"); return r
    monkeypatch.setattr(ts.TrainStep,"__call__",sp)
    wrap(R.StepClock,"begin_step","begin"); wrap(R.StepClock,"end_step","end"); wrap(LD.Loader,"__next__","next") if hasattr(LD.Loader,"__next__") else None
    wrap(R.UtilizationSampler,"__enter__","sampler")
    import sweeper.training.update as up
    wrap(up.Update,"__call__","update"); wrap(ts.TrainStep,"_forward","forward")
    (b.dir/"attempt1").mkdir(); R.run(t); probe("after")
    assert 0
